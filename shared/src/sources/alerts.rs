//! The table `alerts`: where to send alerts that name the orders in trouble.

use std::{fmt, time::Duration};

use serde::Deserialize;

use super::{
    check::positive,
    destination::{AddressScope, Destination},
    reference::{
        ALERT_URL, DURATION,
        FieldForm::{Flag, OneOrMore, Text},
        SIGNING_KEY, document_table, word,
    },
    table::Secrets,
};
use crate::time::duration::duration;

/// The default of `after`.
const AFTER: Duration = Duration::from_secs(120);

/// The largest `after`.
const LONGEST_AFTER: Duration = Duration::from_secs(86_400);

document_table! {
    /// [Alerts that name the orders in trouble](operating.md#alerts-that-name-the-orders). Without this table, no alerts
    /// are sent.
    #[table("[alerts]")]
    pub(super) struct AlertsEntry {
        /// The URL to post messages to, starting with `https://`; with `allow_private` also `http://`. It is a secret.
        #[field(Text(ALERT_URL), required, example("https://hooks.slack.com/services/T0/B0/x"))]
        to: String,
        /// The form of the messages. `webhook` is JSON, signed as Standard Webhooks says.
        #[field(
            word::<AlertForm>(),
            means("that of the URL's host, if it is Slack's, Teams' or Discord's"),
            example("slack")
        )]
        form: Option<AlertForm>,
        /// The key that signs each message, `whsec_` and its bytes in base64. While you roll it, give the old and the new
        /// one.
        #[field(OneOrMore(SIGNING_KEY), required_by(form = "webhook"), example("whsec_bmV3"))]
        #[serde(default)]
        secret: Secrets,
        /// Allows a receiver on this machine or in a private network.
        #[field(Flag, default(false), example(true))]
        #[serde(default)]
        allow_private: bool,
        /// The time from the beginning of trouble to its alert. More than 0, at most a day.
        #[field(Text(DURATION), default("2m"), example("10m"))]
        #[serde(default, deserialize_with = "duration")]
        after: Option<Duration>,
        /// Messages have the orders' keys. Without it, they have hashes, which `serializer show` accepts too.
        #[field(Flag, default(false), example(true))]
        #[serde(default)]
        keys: bool,
        /// Messages have the handlers' errors, which may quote anything.
        #[field(Flag, default(false), example(true))]
        #[serde(default)]
        errors: bool,
    }
}

/// The form of the messages that a receiver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertForm {
    Slack,
    Teams,
    Discord,
    Webhook,
}

/// The hosts whose form is known, or the ends of their names.
const HOSTS: [(&str, AlertForm); 9] = [
    ("hooks.slack.com", AlertForm::Slack),
    ("hooks.slack-gov.com", AlertForm::Slack),
    ("discord.com", AlertForm::Discord),
    (".discord.com", AlertForm::Discord),
    ("discordapp.com", AlertForm::Discord),
    (".logic.azure.com", AlertForm::Teams),
    (".logic.azure.us", AlertForm::Teams),
    (".api.powerplatform.com", AlertForm::Teams),
    (".webhook.office.com", AlertForm::Teams),
];

impl AlertForm {
    fn of_host(host: &str) -> Option<Self> {
        let host = host.to_ascii_lowercase();
        let is_its = |name: &str| if name.starts_with('.') { host.ends_with(name) } else { host == name };
        HOSTS.iter().find(|(name, _)| is_its(name)).map(|(_, form)| *form)
    }
}

/// The checked table `alerts`.
#[derive(Clone, PartialEq, Eq)]
pub struct Alerts {
    pub destination: Destination,
    pub form: AlertForm,
    pub after: Duration,
    pub keys: bool,
    pub errors: bool,
}

impl Alerts {
    pub(super) fn check(entry: AlertsEntry) -> Result<Self, String> {
        let AlertsEntry { to, form, secret, allow_private, after, keys, errors } = entry;
        let scope = if allow_private { AddressScope::Any } else { AddressScope::Public };
        let secrets = Vec::from(secret);
        let is_signed = !secrets.is_empty();
        let destination = Destination::of_alerts(&to, scope, secrets)?;
        let form = form.or_else(|| AlertForm::of_host(destination.host()));
        let form = form.ok_or("`alerts` needs `form`, because the host of `to` does not tell it: \"slack\", \"teams\", \"discord\" or \"webhook\"")?;
        match (form, is_signed) {
            (AlertForm::Webhook, false) => return Err("`alerts` with the form `webhook` needs `secret`".into()),
            (AlertForm::Webhook, true) | (_, false) => {}
            (_, true) => return Err("`alerts.secret` is only for form = \"webhook\"; remove it".into()),
        }
        let after = positive("alerts.after", after.unwrap_or(AFTER))?;
        if after > LONGEST_AFTER {
            return Err("`alerts.after` must be at most a day".into());
        }
        Ok(Self { destination, form, after, keys, errors })
    }
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, form, after, keys, errors } = self;
        // The URL's path is a secret.
        let mut shown = f.debug_struct("Alerts");
        shown.field("host", &destination.host()).field("scope", &destination.scope()).field("form", form);
        shown.field("after", after).field("keys", keys).field("errors", errors).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Sources;

    const KEY: &str = "secret = 'whsec_Zk93bTR6S2dRcTdUaHBY'";

    fn read(fields: &str) -> Result<Alerts, String> {
        let shop = "[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'h'\n";
        let sources = Sources::parse(&format!("[alerts]\n{fields}\n{shop}")).map_err(|error| error.to_string())?;
        Ok(sources.alerts().expect("the table is there").clone())
    }

    #[test]
    fn form_follows_from_known_hosts() {
        for (url, form) in [
            ("https://hooks.slack.com/services/T0/B0/x", AlertForm::Slack),
            ("https://discord.com/api/webhooks/1/x", AlertForm::Discord),
            ("https://ptb.discord.com/api/webhooks/1/x", AlertForm::Discord),
            ("https://prod-1.westeurope.logic.azure.com:443/workflows/x?sig=y", AlertForm::Teams),
            ("https://default1.2.environment.api.powerplatform.com/x", AlertForm::Teams),
        ] {
            let alerts = read(&format!("to = '{url}'")).unwrap();
            let expected = (form, Duration::from_secs(120), false, false);
            assert_eq!((alerts.form, alerts.after, alerts.keys, alerts.errors), expected, "{url}");
        }
        let other = read("to = 'https://hooks.slack.com.example.com/x'").unwrap_err();
        assert!(other.contains("needs `form`, because the host of `to` does not tell it"), "{other}");
        assert_eq!(read("to = 'https://chat.example.com/x'\nform = 'slack'").unwrap().form, AlertForm::Slack);
        assert_eq!(
            read(&format!("to = 'https://example.com/'\nform = 'webhook'\n{KEY}")).unwrap().form,
            AlertForm::Webhook
        );
    }

    #[test]
    fn unusable_alerts_table_is_refused_without_its_values() {
        for (fields, expected) in [
            ("to = 'http://hooks.slack.com/hush'", "`alerts.to` must start with https://; http:// needs allow_private"),
            ("to = 'https://127.0.0.1/hush'\nform = 'slack'", "`alerts.to` leads to 127.0.0.1, which is not a public"),
            ("to = 'https://localhost/hush'\nform = 'slack'", "`alerts.to` leads to localhost"),
            ("to = 'hush'", "`alerts.to` must be a whole URL"),
            ("to = 'https://example.com/hush'\nform = 'slak'", "unknown variant `slak` (did you mean `slack`?)"),
            ("to = 'https://example.com/hush'\nform = 'webhook'", "`alerts` with the form `webhook` needs `secret`"),
            ("to = 'https://hooks.slack.com/hush'\nsecret = 'hush'", "`alerts.secret` must be `whsec_`"),
            ("to = 'https://hooks.slack.com/hush'\nafter = '0s'", "`alerts.after` must be more than zero"),
            ("to = 'https://hooks.slack.com/hush'\nafter = '2d'", "`alerts.after` must be at most a day"),
            ("to = 'https://hooks.slack.com/hush'\nkey = true", "unknown field `key` (did you mean `keys`?)"),
        ] {
            let refused = read(fields).unwrap_err();
            assert!(refused.contains(expected) && !refused.contains("hush"), "{fields}: {refused}");
        }
        let signed = read(&format!("to = 'https://hooks.slack.com/x'\n{KEY}")).unwrap_err();
        assert!(signed.contains("`alerts.secret` is only for form = \"webhook\""), "{signed}");
    }

    #[test]
    fn debug_output_of_alerts_hides_the_path() {
        let shown = format!("{:?}", read("to = 'https://hooks.slack.com/services/T0/B0/hush'").unwrap());
        assert!(shown.contains("hooks.slack.com") && !shown.contains("hush"), "{shown}");
    }
}
