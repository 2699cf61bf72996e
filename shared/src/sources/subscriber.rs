//! Sources without a door: they get their deliveries from another source, whose handler is `fan-out`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{
    FAN_OUT, Source, Sources,
    deliver::{Deliver, Linger, Stale},
    source::SourceEntry,
    template::{Template, first_key},
};
use crate::{
    nearest,
    protocol::{
        delivery::{Delivery, Incoming, NO_ENTITY, StoredBody},
        entity::{EntityKey, Identity, SourceName},
    },
    providers,
    time::Timestamp,
};

/// The most sources that get the deliveries of one source. Each is a write more before a delivery is settled.
const MOST_SUBSCRIBERS: usize = 8;

/// A delivery as a subscriber gets it.
#[derive(Debug, Clone)]
pub struct SubscriberCopy {
    pub incoming: Incoming,
    /// The reason to park the copy; `None` if it belongs to an entity.
    pub unrouted: Option<String>,
    pub order: CopyOrder,
    pub(crate) stored: StoredBody,
    pub(crate) linger: Option<Linger>,
}

/// The place of a copy among the copies of its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOrder {
    AsArrived,
    /// The original was redriven, rewound or deferred: copies of later deliveries may have been appended before. The
    /// copy counts as deferred.
    Late,
}

impl Sources {
    /// Returns the sources that get the deliveries of `source`.
    pub fn subscribers<'a>(&'a self, source: &'a SourceName) -> impl Iterator<Item = &'a Arc<Source>> {
        self.iter().filter(move |other| other.from.as_ref() == Some(source))
    }
}

impl Source {
    /// Returns this subscriber's copy of a delivery of the source that it gets its deliveries from. Returns `None` if
    /// `topics` or `filter` exclude the delivery.
    ///
    /// The copy's identity has the subscriber's name and the sender's id, so that a second copy is a repeat. Its time of
    /// arrival is `now`, because limits of an inbox count from there.
    pub fn copy(&self, delivery: &Delivery, now: Timestamp) -> Option<SubscriberCopy> {
        if self.ignores(delivery.topic(), delivery.body()).is_some() {
            return None;
        }
        let entity = match self.takes(delivery.topic()) {
            true => self.copy_entity(delivery),
            false => Err(self.without_topic().to_owned()),
        };
        let (entity, unrouted) = match entity {
            Ok(entity) => (entity, None),
            Err(reason) => (EntityKey::unrouted(&self.name), Some(reason)),
        };
        let is_late = delivery.redrive() > 0 || delivery.run_before().is_some() || delivery.deferred_until().is_some();
        let identity = Identity { source: self.name.clone(), delivery_id: delivery.delivery_id().clone(), redrive: 0 };
        Some(SubscriberCopy {
            incoming: Incoming { entity, identity, received_at: now, ..delivery.incoming().clone() },
            unrouted,
            order: if is_late { CopyOrder::Late } else { CopyOrder::AsArrived },
            stored: delivery.stored_body(),
            linger: self.linger,
        })
    }

    /// Returns the key of the copies of the deliveries of `entity`. Returns `None` if the source's templates make the key
    /// of each copy.
    pub fn key_of_copies(&self, entity: &EntityKey) -> Option<EntityKey> {
        EntityKey::parse(&self.key_like(entity)).ok().filter(|_| self.entity.is_empty())
    }

    fn key_like(&self, entity: &EntityKey) -> String {
        let (_, rest) = entity.as_str().split_once('/').unwrap_or_default();
        format!("{}/{rest}", self.name)
    }

    /// Returns whether the source gets copies of the deliveries of `entity`, by the first part of its key.
    pub fn is_copied_from(&self, entity: &EntityKey, sources: &Sources) -> bool {
        let parent = self.from.as_ref().and_then(|from| sources.get(from.as_str()));
        parent.filter(|parent| *entity != EntityKey::unrouted(&parent.name)).is_some_and(|parent| {
            let first = match parent.entity.first() {
                Some(template) => template.first_part(&parent.name, &parent.provider_name).unwrap_or_default(),
                None => parent.name.to_string(),
            };
            entity.as_str().split_once('/').is_some_and(|(part, _)| part == first)
        })
    }

    /// Returns the key of the copy's entity: by the templates, or the original's key with the subscriber's name in place
    /// of the first part. An error says why there is none, and quotes nothing of the body.
    fn copy_entity(&self, delivery: &Delivery) -> Result<EntityKey, String> {
        let body = delivery.body();
        let filled = |template: &Template| {
            template.fill(delivery.topic(), |field| match field {
                "source" => Some(Cow::from(self.name.as_str())),
                "provider" => Some(self.provider_name.as_str().into()),
                "topic" => Some(delivery.topic().into()),
                pointer => providers::pointer(body, pointer),
            })
        };
        let own = self.entity.is_empty().then(|| self.key_like(delivery.entity()));
        first_key(self.entity.iter().filter_map(filled).chain(own)).map_err(|invalid| {
            invalid.unwrap_or_else(|| providers::unreadable(body).unwrap_or_else(|| NO_ENTITY.to_owned()))
        })
    }
}

/// Returns the source that `name` gets its deliveries from. An error shows no value of the document, which may be a
/// misplaced secret.
pub(super) fn parent<'a>(
    name: &SourceName,
    from: &str,
    entry: &SourceEntry,
    doors: &'a BTreeMap<SourceName, Arc<Source>>,
) -> Result<&'a Source, String> {
    if let Some(field) = entry.door_fields().next() {
        return Err(format!("a source with `from` gets no webhooks, so it has no `{field}`; remove it"));
    }
    if from == name.as_str() {
        return Err("`from` names the source itself; name the source that gets the webhooks".into());
    }
    let parent = SourceName::parse(from).ok().and_then(|from| doors.get(&from));
    let door = parent.filter(|parent| parent.from.is_none()).ok_or_else(|| {
        let hint =
            nearest::hint(from, doors.values().filter(|door| door.from.is_none()).map(|door| door.name.as_str()));
        match parent.and_then(|parent| Some((&parent.name, parent.from.as_ref()?))) {
            Some((name, from)) => {
                format!("`from` names `{name}`, which is itself a subscriber, of `{from}`; name `{from}`")
            }
            None => format!("`from` names no source that gets webhooks{hint}"),
        }
    })?;
    match door.handler == FAN_OUT {
        true => Ok(door),
        false => Err(format!("`from` names `{}`, which needs handler = '{FAN_OUT}' then", door.name)),
    }
}

/// Returns the first source that cannot be used beside the others, and the reason.
pub(super) fn objection(sources: &BTreeMap<SourceName, Arc<Source>>) -> Option<(&SourceName, String)> {
    let subscribers: Vec<&Source> =
        sources.values().map(AsRef::as_ref).filter(|source| source.from.is_some()).collect();
    sources.values().find_map(|source| {
        let of_it = subscribers.iter().filter(|subscriber| subscriber.from.as_ref() == Some(&source.name)).count();
        let objection = match source.from {
            Some(_) if source.handler == FAN_OUT => {
                Some(format!("handler = '{FAN_OUT}' is for a source that gets webhooks; choose another"))
            }
            Some(_) => template_of_copies(source),
            None => spread_objection(source, of_it).or_else(|| collision(source, &subscribers)),
        };
        objection.map(|objection| (&source.name, objection))
    })
}

fn template_of_copies(source: &Source) -> Option<String> {
    (1..).zip(&source.entity).find_map(|(number, template): (usize, _)| {
        Some(format!("entity template {number}: {}", template.objection_of_copies()?))
    })
}

/// Returns why a source with a door cannot have this many subscribers.
fn spread_objection(source: &Source, subscribers: usize) -> Option<String> {
    let name = &source.name;
    if source.handler != FAN_OUT {
        return None;
    }
    let firsts: Vec<_> =
        source.entity.iter().map(|template| template.first_part(&source.name, &source.provider_name)).collect();
    if subscribers == 0 {
        Some(format!("handler = '{FAN_OUT}' needs other sources with from = '{name}'"))
    } else if subscribers > MOST_SUBSCRIBERS {
        Some(format!("{subscribers} sources have from = '{name}'; at most {MOST_SUBSCRIBERS} can"))
    } else if source.deliver != Deliver::Each || source.stale != Stale::Run {
        Some(format!("`deliver` and `stale` belong to the sources with from = '{name}'; remove them here"))
    } else if firsts.iter().any(|first| first.is_err() || *first != firsts[0]) {
        Some(
            "its entity templates must begin with the same part, such as `{source}/`: copies have their source's name \
             instead, and two orders could become one"
                .into(),
        )
    } else {
        None
    }
}

/// Returns why a key of `source` could be one of a subscriber's keys, which begin with the subscriber's name.
fn collision(source: &Source, subscribers: &[&Source]) -> Option<String> {
    (1..).zip(&source.entity).find_map(|(number, template): (usize, _)| {
        let first = template.first_part(&source.name, &source.provider_name);
        let may_be = |name: &SourceName| match &first {
            Ok(part) => part == name.as_str(),
            Err(beginning) => name.as_str().starts_with(beginning.as_str()),
        };
        let other = subscribers.iter().find(|subscriber| may_be(&subscriber.name))?;
        Some(format!(
            "entity template {number} can make keys of `{}`, whose deliveries come from another source; begin it with \
             `{{source}}/`",
            other.name
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entity::{DeliveryId, Sequence};

    const SHOP: &str = "[sources.shop]\nprovider = 'shopify'\nhandler = 'fan-out'\n";
    const MAILS: &str = "[sources.mails]\nfrom = 'shop'\nhandler = 'log'\n";

    fn refused(document: &str) -> String {
        Sources::parse(document).unwrap_err().to_string()
    }

    /// Promise: `check` refuses subscribers of nobody, of a subscriber and of themselves, more than eight, settings of a
    /// door, and keys that two orders or sources could share.
    #[test]
    fn subscriber_that_cannot_work_is_refused() {
        let eight: String = (1..=9).map(|number| MAILS.replace("mails", &format!("m{number}"))).collect();
        for (document, reason) in [
            (MAILS.to_owned(), "source `mails`: `from` names no source that gets webhooks"),
            (
                format!("{SHOP}{}", MAILS.replace("'shop'", "'shpo'")),
                "source `mails`: `from` names no source that gets webhooks (did you mean `shop`?)",
            ),
            (MAILS.replace("'shop'", "'mails'"), "source `mails`: `from` names the source itself"),
            (
                format!("{SHOP}{MAILS}{}", MAILS.replace("'shop'", "'mails'").replace(".mails]", ".more]")),
                "source `more`: `from` names `mails`, which is itself a subscriber, of `shop`; name `shop`",
            ),
            (
                format!("{SHOP}{MAILS}{}", MAILS.replace("'shop'", "'mails'").replace(".mails]", ".first]")),
                "source `first`: `from` names `mails`, which is itself a subscriber, of `shop`; name `shop`",
            ),
            (
                format!("{}{MAILS}", SHOP.replace("fan-out", "log")),
                "source `mails`: `from` names `shop`, which needs handler = 'fan-out' then",
            ),
            (SHOP.to_owned(), "source `shop`: handler = 'fan-out' needs other sources with from = 'shop'"),
            (format!("{SHOP}{eight}"), "source `shop`: 9 sources have from = 'shop'; at most 8 can"),
            (
                format!("{SHOP}{}", MAILS.replace("'log'", "'fan-out'")),
                "source `mails`: handler = 'fan-out' is for a source that gets webhooks",
            ),
            (
                format!("{SHOP}deliver = 'latest'\n{MAILS}"),
                "source `shop`: `deliver` and `stale` belong to the sources with from = 'shop'",
            ),
            (format!("{SHOP}stale = 'skip'\n{MAILS}"), "source `shop`: `deliver` and `stale` belong to"),
            (
                format!("{SHOP}entity = ['a/{{/id}}', 'b/{{/id}}']\n{MAILS}"),
                "source `shop`: its entity templates must begin with the same part",
            ),
            (format!("{SHOP}entity = '{{/id}}/x'\n{MAILS}"), "must begin with the same part"),
            (
                format!("{SHOP}entity = 'mails/{{/id}}'\n{MAILS}"),
                "source `shop`: entity template 1 can make keys of `mails`",
            ),
            (
                format!("{SHOP}{MAILS}[sources.chat]\nprovider = 'slack'\nhandler = 'log'\nentity = 'ma{{/id}}/x'"),
                "source `chat`: entity template 1 can make keys of `mails`",
            ),
            (format!("{SHOP}{MAILS}entity = 'x/{{/id}}'"), "template 1: with `from`, it must begin with `{source}/`"),
            (format!("{SHOP}{MAILS}entity = '{{source}}{{/id}}'"), "it must begin with `{source}/`"),
            (
                format!("{SHOP}{MAILS}entity = '{{source}}/{{entity}}'"),
                "{entity} cannot be read from a stored delivery",
            ),
            (format!("{SHOP}{MAILS}entity = '{{source}}/{{header:x}}'"), "{header:x} cannot be read"),
        ] {
            let refused = refused(&document);
            assert!(refused.contains(reason), "{document}\n{refused}");
        }
        for field in [
            "provider = 'shopify'",
            "secrets = 'hush'",
            "webhook_id = 'hush'",
            "client_id = 'hush'",
            "tolerance = '1m'",
            "url = 'https://example.com/hush'",
            "on_outage = 'queue'",
            "generic = { header = 'x', hash = 'sha256', encoding = 'hex' }",
        ] {
            let refused = refused(&format!("{SHOP}{MAILS}{field}"));
            let name = field.split(' ').next().unwrap();
            assert!(
                refused.contains(&format!("it has no `{name}`; remove it")) && !refused.contains("hush"),
                "{refused}"
            );
        }
        for fine in ["entity = '{source}/{topic}/{/id}'\n", "topics = { take = 'orders/*' }\n", "deliver = 'latest'\n"]
        {
            let document = format!("{SHOP}entity = ['a/{{/id}}', 'a/{{topic}}']\n{MAILS}{fine}");
            assert!(Sources::parse(&document).is_ok(), "{:?}", Sources::parse(&document));
        }
    }

    fn copy(fields: &str, key: &str, topic: &str, body: &str) -> Option<(String, Option<String>)> {
        let sources = Sources::parse(&format!("{SHOP}{MAILS}{fields}")).unwrap();
        let incoming = Incoming {
            entity: EntityKey::parse(key).unwrap(),
            identity: Identity {
                source: SourceName::parse("shop").unwrap(),
                delivery_id: DeliveryId::new("7"),
                redrive: 3,
            },
            provider: Some("shopify".into()),
            topic: topic.into(),
            family: "orders".into(),
            event_time: Some(Timestamp::from_secs(5)),
            received_at: Timestamp::from_secs(6),
            content_type: None,
            body: body.to_owned().into(),
        };
        let delivery = Delivery::detached(incoming, Sequence(1));
        let copy = sources.get("mails").unwrap().copy(&delivery, Timestamp::from_secs(9))?;
        assert_eq!((copy.incoming.identity.source.as_str(), copy.incoming.identity.redrive), ("mails", 0));
        assert_eq!(copy.incoming.identity.delivery_id, *delivery.delivery_id());
        assert_eq!(
            (copy.incoming.received_at, copy.incoming.event_time),
            (Timestamp::from_secs(9), delivery.event_time())
        );
        assert_eq!(copy.order, CopyOrder::Late, "it was redriven");
        Some((copy.incoming.entity.to_string(), copy.unrouted))
    }

    #[test]
    fn copy_has_the_subscribers_key_topics_and_filter() {
        let routed = |key: &str| Some((key.to_owned(), None));
        let of = |fields: &str, topic: &str, body: &str| copy(fields, "shop/order/7", topic, body);
        assert_eq!(of("", "orders/paid", "{}"), routed("mails/order/7"));
        assert_eq!(copy("", "joined/7", "orders/paid", "{}"), routed("mails/7"));
        let own = "entity = ['{source}/{provider}/{/customer/id}', '{source}/{orders/*:topic}']";
        assert_eq!(of(own, "orders/paid", r#"{"customer":{"id":8}}"#), routed("mails/shopify/8"));
        assert_eq!(of(own, "orders/paid", "{}"), routed("mails/orders/paid"));
        let parked = |reason: &str| Some(("mails/unrouted".to_owned(), Some(reason.to_owned())));
        assert_eq!(of(own, "refunds/create", "{}"), parked(NO_ENTITY));
        assert_eq!(of(own, "refunds/create", "<x/>"), parked("the body is XML or HTML, not JSON"));
        let topics = "topics = { take = 'orders/*' }";
        assert_eq!(of(topics, "refunds/create", "{}"), None);
        assert_eq!(of(topics, "orders/paid", "{}"), routed("mails/order/7"));
        let no_topic = "the webhook has no topic, and the source takes only certain topics";
        assert_eq!(of(topics, "unknown", "{}"), parked(no_topic));
        let filter = "filter = { '/test' = false }";
        assert_eq!(of(filter, "orders/paid", r#"{"test":true}"#), None);
        assert_eq!(of(filter, "orders/paid", r#"{"test":false}"#), routed("mails/order/7"));
        assert_eq!(of(filter, "orders/paid", "test=true"), routed("mails/order/7"));
    }
}
