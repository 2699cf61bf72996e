//! Options that select orders or deliveries by source, error and time.

use std::{str::FromStr, time::Duration};

use clap::Args;
use serializer::view::overview::OrderFilter;
use webhook_serializer::{protocol::entity::SourceName, time::Timestamp};

/// The options that choose orders or deliveries by their properties.
#[derive(Debug, Clone, Args)]
pub struct Selection {
    /// Only orders whose next delivery is of this source, and its parked deliveries
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    pub source: Option<SourceName>,
    /// Only errors with this text; in it, `…` or a number of four or more digits matches any such number
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// Only orders and deliveries that stopped or began to wait since TIME: a duration such as 2h, or a time such as
    /// 2026-11-22T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
}

impl Selection {
    pub fn filter(&self, now: Timestamp) -> OrderFilter {
        let since = self.since.map(|since| since.before(now));
        OrderFilter { source: self.source.clone(), error: self.error.clone(), since }
    }

    pub fn is_empty(&self) -> bool {
        self.source.is_none() && self.error.is_none() && self.since.is_none()
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Since {
    Ago(Duration),
    At(Timestamp),
}

impl Since {
    pub fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(ago) => Timestamp::from_millis(now.as_millis().saturating_sub(ago.as_millis() as u64)),
            Self::At(at) => at,
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = || Timestamp::from_str(text).map(Self::At);
        humantime::parse_duration(text).map(Self::Ago).or_else(|_| at()).map_err(|_| {
            "give a duration with its unit, such as 30m or 2h, or a time in UTC, such as 2026-11-22T12:00:00Z"
                .to_owned()
        })
    }
}
