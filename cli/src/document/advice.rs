//! Advice of `serializer check` about valid sources that may not do what their author wants.

mod filter;
pub mod handlers;
pub mod subscribers;
mod topics;

use console::{StyledObject, style};
use webhook_serializer::{
    protocol::{delivery::Incoming, entity::EntityKey},
    providers::{self, Example, Payload},
    sources::{
        CredentialField, Source, Sources,
        deliver::{Deliver, Stale},
        destination::Destination,
    },
    time::Timestamp,
};

use crate::{
    local::samples,
    output::{Table, this_command},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub weight: Weight,
    /// The problem, and what to write instead. The text may have several lines.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    Note,
    Warning,
    /// The functions read the document, but do not do what it says.
    Error,
}

impl Weight {
    /// Returns the word in front of an advice's text, as terminals show it.
    pub fn label(self) -> StyledObject<&'static str> {
        match self {
            Self::Note => style("note:").bold(),
            Self::Warning => style("warning:").yellow().bold(),
            Self::Error => style("error:").red().bold(),
        }
    }
}

pub fn of(source: &Source) -> Vec<Advice> {
    let warning = entities(source).map(|text| Advice { weight: Weight::Warning, text });
    let nothing = finds_nothing(source).map(|text| Advice { weight: Weight::Note, text });
    let guessable: Vec<Advice> = source
        .guessable()
        .map(|(which, what)| Advice {
            weight: Weight::Error,
            text: format!(
                "source `{}`: {which} {what}, so the functions do not use it: write the value that the sender shows",
                source.name
            ),
        })
        .collect();
    let posts = source.forward().and_then(Destination::guessable).map(|what| Advice {
        weight: Weight::Warning,
        text: format!(
            "source `{}`: the secret of `forward` {what}, so its receiver would believe a forger's requests: write a\n\
             random one, `whsec_` and the output of `openssl rand -base64 24`",
            source.name
        ),
    });
    let missing = source.missing_field().filter(|_| guessable.is_empty());
    let note = missing.map(|field| Advice { weight: Weight::Note, text: without(source, field) });
    let spaced = source.spaced_secrets().into_iter().map(|number| Advice {
        weight: Weight::Note,
        text: format!(
            "source `{}`: secret number {number} has white space around it, which is part of the key: remove it, unless the \
             sender shows it too",
            source.name
        ),
    });
    let paused = source.is_paused.then(|| Advice {
        weight: Weight::Note,
        text: format!(
            "source `{0}` is paused: its webhooks are accepted and wait. To continue: `{1} source resume {0}`",
            source.name,
            this_command()
        ),
    });
    let several = several(source).map(|text| Advice { weight: Weight::Note, text });
    let repeats = source.may_mistake_events_for_repeats().then(|| Advice {
        weight: Weight::Note,
        text: format!(
            "source `{}`: without `delivery_id`, a webhook whose body equals an earlier one counts as its repeat. If the\n\
             sender's bodies only name an object, such as `id=tr_7`, write `retried_for = \"0s\"`: each request is a delivery",
            source.name
        ),
    });
    warning
        .into_iter()
        .chain(nothing)
        .chain(topics::of(source))
        .chain(filter::of(source))
        .chain(several)
        .chain(repeats)
        .chain(note)
        .chain(guessable)
        .chain(posts)
        .chain(spaced)
        .chain(paused)
        .collect()
}

/// Returns the advice about a source that has the credentials of the samples.
pub fn of_development(source: &Source) -> Option<Advice> {
    let samples = Sources::parse(samples::SOURCES).ok()?;
    let field = source.credential_field()?;
    let is_known = samples.iter().any(|sample| sample.shares_credentials(source));
    is_known.then(|| Advice {
        weight: Weight::Note,
        text: format!(
            "source `{}`: `{field}` has the samples' development value, which everybody knows: replace it before you deploy",
            source.name
        ),
    })
}

/// Returns the advice about the proxy in front of the ingest function.
pub fn of_origin(sources: &Sources) -> Option<Advice> {
    sources.origin().guessable().map(|what| Advice {
        weight: Weight::Error,
        text: format!(
            "`origin`: a secret {what}, so the functions do not use it: write the output of `openssl rand -hex 32`"
        ),
    })
}

/// Returns the advice about the receiver of alerts.
pub fn of_alerts(sources: &Sources) -> Option<Advice> {
    let what = sources.alerts()?.destination.guessable()?;
    Some(Advice {
        weight: Weight::Warning,
        text: format!(
            "`alerts`: the secret {what}, so its receiver would believe a forger's messages: write a random one, `whsec_` \
             and the output of `openssl rand -base64 24`"
        ),
    })
}

fn several(source: &Source) -> Option<String> {
    let name = &source.name;
    let provider = &source.provider_name;
    let facts = &providers::rule_of(provider)?.facts;
    if source.stale == Stale::Skip && facts.resolution.is_none() {
        return Some(format!(
            "source `{name}`: `stale = \"skip\"` has no effect, because {provider} does not say when an event happened"
        ));
    }
    (source.deliver == Deliver::Latest && facts.payload == Payload::Depends).then(|| {
        format!(
            "source `{name}`: `deliver = \"latest\"` leaves out webhooks that a newer one of the same topic family \
             replaces,\n\
             but not every webhook of {provider} contains everything that earlier ones did"
        )
    })
}

fn without(source: &Source, field: CredentialField) -> String {
    let name = &source.name;
    if field != CredentialField::Secrets {
        return format!(
            "source `{name}` has no `{field}` yet: its deliveries are answered 503, and the sender retries. Write the value\n\
             that the sender shows for …/webhooks/{name} into the document"
        );
    }
    format!(
        "source `{name}` has no secret yet: its deliveries are answered 503. Most senders retry for hours; WooCommerce\n\
         does not. Write the secret that the sender shows for …/webhooks/{name} into `secrets`;\n\
         docs/deploying.md#connect-the-senders says where to find it"
    )
}

struct Routed {
    example: &'static Example,
    delivery: Incoming,
}

/// Returns advice if the source's `entity` templates assign the provider's examples to orders differently than the
/// provider's own rule does. A source that assigns all examples to one order gets no advice.
fn entities(source: &Source) -> Option<String> {
    let rule = providers::rule_of(&source.provider_name)?;
    let routed: Vec<Routed> = rule.examples.iter().map(|example| route(source, example)).collect();
    let key = |routed: &Routed| routed.delivery.entity.clone();
    let first = key(routed.first()?);
    if routed.iter().all(|routed| key(routed) == first) {
        return None;
    }
    let about_first = |named: &str| routed.iter().filter(|routed| routed.example.entity == named).map(key).next();
    let split = routed.iter().find(|one| about_first(one.example.entity).as_ref() != Some(&key(one)));
    let unrouted = EntityKey::unrouted(&source.name);
    let met = |one: &&Routed| {
        let same = |other: &Routed| key(other) == key(one) && other.example.entity != one.example.entity;
        key(one) != unrouted && routed.iter().any(same)
    };
    let (what, shown): (_, Vec<&Routed>) = if let Some(split) = split {
        let about = split.example.entity;
        let what = format!(
            "`entity` gives deliveries about the same object, {about}, different keys, so they run in parallel"
        );
        (what, routed.iter().filter(|one| one.example.entity == about).collect())
    } else {
        let shown: Vec<&Routed> = routed.iter().filter(met).collect();
        shown.first()?;
        ("`entity` gives deliveries about different objects the same key, so they wait for each other".into(), shown)
    };
    let mut table = Table::new(&["topic", "about", "goes to"]);
    for one in shown {
        let goes_to = match key(one) {
            key if key == unrouted => format!("{key}, parked"),
            key => key.to_string(),
        };
        table.row([one.delivery.topic.clone(), one.example.entity.to_owned(), goes_to]);
    }
    let or = if split.is_some() { "" } else { "Or take a field from some topics only: `{TOPICS:FIELD}`.\n" };
    let name = &source.name;
    let provider = &source.provider_name;
    let rows: String = table.to_string().lines().map(|row| format!("  {row}\n")).collect();
    Some(format!(
        "source `{name}`: {what}:\n{rows}\
         Omit `entity`, or use `{{entity}}`: for each topic, {provider}'s own rule fills it, such as {}\n\
         {or}(docs/sources.md#entity-what-order-is-kept-for)",
        rule.examples.first()?.entity
    ))
}

fn finds_nothing(source: &Source) -> Option<String> {
    let rule = providers::rule_of(&source.provider_name)?;
    let unrouted = EntityKey::unrouted(&source.name);
    let mut routed = rule.examples.iter().map(|example| route(source, example).delivery.entity).peekable();
    routed.peek()?;
    routed.all(|key| key == unrouted).then(|| {
        let name = &source.name;
        let provider = &source.provider_name;
        format!(
            "source `{name}`: `entity` finds nothing in any example of {provider}'s events. The examples contain only the\n\
             fields that {provider}'s own rule needs, so your template may still be right. Deliveries without an entity\n\
             are parked under {unrouted}"
        )
    })
}

fn route(source: &Source, example: &'static Example) -> Routed {
    let headers = example.header.into_iter().collect();
    let request = providers::Request { headers: &headers, body: example.body.as_bytes() };
    Routed { example, delivery: source.delivery(request, Timestamp::from_millis(0)) }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use webhook_serializer::sources::Sources;

    use super::*;

    fn advice(provider: &str, rest: &str) -> Vec<Advice> {
        let document = format!("[sources.shop]\nprovider = '{provider}'\nhandler = 'h'\n{rest}");
        of(Sources::parse(&document).unwrap().get("shop").unwrap())
    }

    fn texts<const N: usize>(advice: Vec<Advice>) -> [String; N] {
        let texts: Vec<String> = advice.into_iter().map(|advice| advice.text).collect();
        texts.try_into().unwrap()
    }

    fn warned(provider: &str, entity: &str) -> Option<String> {
        let all = advice(provider, &format!("secrets = ['whsec_q7mZ4kT1']\nentity = {entity}"));
        assert!(all.iter().all(|advice| advice.weight == Weight::Warning), "{all:?}");
        all.into_iter().map(|advice| console::strip_ansi_codes(&advice.text).into_owned()).next()
    }

    #[test]
    fn guessable_or_padded_secret_is_reported_and_hidden() {
        let secrets = "secrets = ['…', 'whsec_...', ' hush-q7mZ4kT1', 'as it should be', 'hush']";
        let all = advice("shopify", secrets);
        let weights: Vec<Weight> = all.iter().map(|advice| advice.weight).collect();
        assert_eq!(weights, [Weight::Error, Weight::Error, Weight::Error, Weight::Note]);
        let [first, second, third, padded] = texts(all);
        assert!(first.starts_with("source `shop`: secret number 1 is a placeholder, so the functions do not"));
        assert!(second.contains("number 2 is a placeholder") && third.contains("number 5 is a placeholder"));
        assert!(padded.contains("number 3 has white space around it, which is part of the key"), "{padded}");
        assert!(![first, second, third, padded].concat().contains("hush"));
        let key = include_str!("../../../shared/src/providers/tests/p256-public.pem");
        let fields = "generic = { header = 'x', public_key = 'ecdsa-p256', encoding = 'hex', delivery_id = '/id' }";
        let of_key = advice("generic", &format!("secrets = ['''{key}''']\n{fields}"));
        assert!(of_key.is_empty(), "{of_key:?}");
        let [id] = texts(advice("paypal", "webhook_id = 'WEBHOOK_ID'"));
        assert!(id.contains("`webhook_id` number 1 is a placeholder"), "{id}");
    }

    #[test]
    fn guessable_secret_of_origin_or_forward_is_reported() {
        let document = |secret: &str, origin: &str| {
            format!(
                "[origin]\nsecret = '{origin}'\n[sources.shop]\nprovider = 'shopify'\nsecrets = ['hush-q7mZ4kT1']\n\
                 handler = 'forward'\nforward = {{ url = 'https://example.com/', secret = '{secret}' }}"
            )
        };
        let both = |secret: &str, origin: &str| {
            let sources = Sources::parse(&document(secret, origin)).unwrap();
            (of_origin(&sources), of(sources.get("shop").unwrap()))
        };
        let random = "whsec_Zk93bTR6S2dRcTdUaHBY";
        let unresolved = "{{resolve:secretsmanager:origin:SecretString}}";
        let (of_origin, of_shop) = both(random, &"q7mZ4kT1".repeat(4));
        assert!(of_origin.is_none() && of_shop.is_empty(), "{of_origin:?} {of_shop:?}");
        let (of_origin, of_shop) = both("whsec_c2VjcmV0", unresolved);
        let of_origin = of_origin.unwrap();
        assert_eq!(of_origin.weight, Weight::Error);
        assert!(of_origin.text.contains("a secret is a reference that nothing has replaced"), "{}", of_origin.text);
        let [forward] = texts(of_shop);
        assert!(forward.contains("the secret of `forward` is a placeholder"), "{forward}");
    }

    #[test]
    fn generic_source_without_delivery_id_gets_note() {
        let noted = |options: &str| {
            let generic =
                format!("secrets = ['q7mZ4kT1']\ngeneric = {{ token_in = 'x-key', entity = '{{form:id}}'{options} }}");
            advice("generic", &generic).len()
        };
        assert_eq!(noted(""), 1);
        for options in [", delivery_id = 'x-id'", ", event_time = '/at'", ", retried_for = '0s'"] {
            assert_eq!(noted(options), 0, "{options}");
        }
    }

    #[test]
    fn note_says_why_deliver_or_stale_option_is_unsuitable() {
        let noted = |provider: &str, rest: &str| {
            let all = advice(provider, &format!("secrets = ['whsec_Zk93bTR6S2dRcTdUaHBY']\n{rest}"));
            all.into_iter().map(|advice| advice.text).collect::<Vec<_>>()
        };
        assert_eq!(noted("shopify", "deliver = 'latest'\nstale = 'skip'"), [""; 0]);
        assert!(noted("stripe", "deliver = 'latest'")[0].contains("not every webhook of stripe contains everything"));
        assert_eq!(noted("stripe", "deliver = { up_to = 5 }"), [""; 0]);
        let nothing = noted("shipstation-v1", "stale = 'skip'");
        assert!(nothing[0].contains("shipstation-v1 does not say when an event happened"), "{nothing:?}");
    }

    /// Promise: it warns about templates that scatter deliveries or find nothing, and not about these pages' templates.
    #[test]
    fn entity_template_that_splits_an_order_causes_a_warning() {
        let told = warned("shopify", "'{source}/order/{/id}'").unwrap();
        for expected in [
            "orders/updated             order/7  shop/order/7\n",
            "orders/edited              order/7  shop/unrouted, parked\n",
            "refunds/create             order/7  shop/order/3\n",
            "returns/approve            order/7  shop/order/5\n",
            "use `{entity}`",
        ] {
            assert!(told.contains(expected), "{expected}: {told}");
        }
        assert!(!told.contains("products/update"), "{told}");
        for entity in [
            "'{source}/order/{/order_id}'",
            "['{source}/order/{/order_id}', '{source}/order/{/id}']",
            "'{source}/{/admin_graphql_api_id}'",
            "'{source}/{/order_number}'",
            "'{source}/{topic}'",
        ] {
            assert!(warned("shopify", entity).unwrap().contains("about the same object, order/7, "), "{entity}");
        }
        for entity in [
            "'{source}/payment/{/data/object/id}'",
            "'{source}/payment/{/data/object/payment_intent}'",
            "['shop/order/{/data/object/metadata/order_id}', '{source}/{/data/object/id}']",
        ] {
            assert!(
                warned("stripe", entity).unwrap().contains("about the same object, payment_intent/pi_1"),
                "{entity}"
            );
        }
    }

    #[test]
    fn entity_template_that_merges_objects_causes_a_warning() {
        let told = warned("woocommerce", "'{source}/order/{/id}'").unwrap();
        assert!(told.contains("different objects the same key"), "{told}");
        assert!(told.contains("product.updated   product/7   shop/order/7\n"), "{told}");
        assert!(told.contains("Or take a field from some topics only"), "{told}");
        let told = warned("easypost", "'shop/order/{/result/reference}'").unwrap();
        assert!(told.contains("batch.updated        batch/batch_7    shop/order/7\n"), "{told}");
    }

    #[test]
    fn entity_template_that_keeps_orders_whole_causes_no_warning() {
        for (provider, entity) in [
            ("shopify", "'{source}/{entity}'"),
            ("shopify", "'all/{entity}'"),
            ("shopify", "'shop/one'"),
            ("shopify", "['{source}/customer/{/customer/id}', '{source}/{entity}']"),
            ("stripe", "['shopify/order/{/data/object/metadata/order_id}', '{source}/{entity}']"),
            ("stripe", "'shopify/order/{/data/object/metadata/order_id}'"),
            ("woocommerce", "'{source}/{entity}'"),
        ] {
            assert_eq!(warned(provider, entity), None, "{provider} {entity}");
        }
        assert_eq!(
            advice("standard-webhooks", "secrets = ['Zk93bTR6S2dRcTdUaHBY']\nentity = '{source}/order/{/data/id}'"),
            []
        );
        let own = ["shopify", "stripe", "woocommerce"].map(|provider| advice(provider, "secrets = ['whsec_q7mZ4kT1']"));
        assert_eq!(own, [const { Vec::new() }; 3]);
    }

    #[test]
    fn entity_template_splitting_order_across_providers_causes_warning() {
        let document = include_str!("../../events/one-order.toml");
        let all = |document: &str| -> Vec<Advice> {
            Sources::parse(document).unwrap().iter().flat_map(|source| of(source)).collect()
        };
        assert_eq!(all(document), []);
        for (kept, splits) in [
            ("shop/{entity}", "shop/order/{/id}"),
            ("shop/{entity}", "shop/order/{orders/*:/id}"),
            ("shop/order/{/data/object/metadata/order_id}", "shop/order/{charge.*:/data/object/metadata/order_id}"),
            ("{source}/{tracker.*:entity}", "{source}/{topic}"),
        ] {
            let [warning] = all(&document.replace(kept, splits)).try_into().unwrap();
            assert_eq!(warning.weight, Weight::Warning);
            assert!(warning.text.contains("gives deliveries about the same object"), "{splits}: {}", warning.text);
        }
    }

    #[test]
    fn entity_template_matching_no_example_webhook_gets_a_note() {
        for entity in ["'shop/order/{/result/refrence}'", "'shop/order/{insurences.*:/result/reference}'"] {
            let [note] =
                advice("easypost", &format!("secrets = ['whsec_q7mZ4kT1']\nentity = {entity}")).try_into().unwrap();
            assert_eq!(note.weight, Weight::Note);
            assert!(note.text.contains("finds nothing in any example") && note.text.contains("shop/unrouted"));
        }
        for entity in ["'shop/order/{insurance.*:/result/reference}'", "'{source}/{tracker.*:entity}'"] {
            assert_eq!(advice("easypost", &format!("secrets = ['whsec_q7mZ4kT1']\nentity = {entity}")), [], "{entity}");
        }
    }

    #[test]
    fn each_providers_default_entity_rule_causes_no_warning() {
        let mut with_examples = 0;
        for name in providers::webhook_senders() {
            let Some(rule) = providers::rule_of(name) else { continue };
            let url = if rule.facts.signed.url { "url = 'https://example.com/'" } else { "" };
            let warned = advice(name, url).into_iter().find(|advice| advice.weight == Weight::Warning);
            assert_eq!(warned, None, "{name}");
            with_examples += usize::from(!rule.examples.is_empty());
        }
        assert!(with_examples >= 11, "{with_examples}");
    }

    /// Checks the TOML blocks of the documentation that begin with a `[sources.…]` header.
    #[test]
    fn sources_in_documentation_cause_no_warning() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages = fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
        let mut sources = 0;
        for page in
            pages.filter(|page| page.extension().is_some_and(|kind| kind == "md")).chain([root.join("README.md")])
        {
            let text = fs::read_to_string(&page).unwrap();
            let blocks = text.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
            for block in blocks.filter(|block| block.trim_start().starts_with("[sources.")) {
                // Replaces placeholder secrets by valid ones.
                let document = block.replace("whsec_…", "whsec_Zk93bTR6S2dRcTdUaHBY");
                let read =
                    Sources::parse(&document).unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
                for source in read.iter() {
                    let warned = of(source).into_iter().find(|advice| advice.weight == Weight::Warning);
                    assert_eq!(warned, None, "{}", page.display());
                    sources += 1;
                }
            }
        }
        assert!(sources >= 4, "{sources}");
    }

    #[test]
    fn source_without_secret_is_noted() {
        for secrets in ["", "secrets = []"] {
            let [note] = advice("stripe", secrets).try_into().unwrap();
            assert_eq!(note.weight, Weight::Note);
            assert!(note.text.starts_with("source `shop` has no secret yet"), "{}", note.text);
        }
    }
}
