//! Finds region and credentials outside Lambda, in the places where every AWS SDK looks.
//!
//! The credentials come from a profile, a web identity (EKS), a container's role (ECS, EKS) or an
//! instance's role (EC2). The clients renew the credentials before they expire.

use super::{Account, bundle};
use crate::{
    config::{InvalidConfig, Variables},
    tls::Roots,
};

pub(super) async fn account(variables: &impl Variables) -> Result<Account, InvalidConfig> {
    // Outside Lambda, start time does not matter, and the machine may trust a company's proxy.
    let roots = bundle(variables)?.unwrap_or_else(Roots::machine);
    let http = Account { roots: Some(roots.clone()), ..Account::local("", "") }.http_client();
    let found = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let nowhere = || InvalidConfig::new("AWS_REGION", "is not set, and neither profile nor instance names a region");
    let nobody = || InvalidConfig::new("AWS_ACCESS_KEY_ID", "is not set, and no other AWS credentials were found");
    let region = found.region().ok_or_else(nowhere)?;
    Ok(Account::of(region.clone(), found.credentials_provider().ok_or_else(nobody)?, roots))
}
