//! Shopify sends a base64 HMAC-SHA256 of the body, under the app's client secret.
//!
//! Only the body is signed; topic, shop, webhook id and time are in unsigned headers. So
//! anybody who has seen a request can replay its body under any topic and id. Only TLS keeps
//! requests confidential.
//!
//! The names of headers begin with `X-Shopify-` or, for newer events, with `Shopify-`. If a request has
//! both, `Shopify-…` takes precedence (Shopify/shopify-app-js, `lib/webhooks/validate.ts`).

use std::time::Duration;

use super::{
    Described, Encoding, Envelope, HashName, Headers, Inlet, Proof, Provider, Request, Secret, Unverified, describe,
    facts::{Facts, FailureLimit, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{self, EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
    tables,
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Shopify;

/// The names of the signature header, for newer and for older events.
const SIGNATURES: [&str; 2] = ["shopify-hmac-sha256", "x-shopify-hmac-sha256"];

fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.first(&format!("shopify-{name}")).or_else(|| headers.first(&format!("x-shopify-{name}")))
}

/// The locations of the entity's id in Shopify's events. An `orders/edited` event holds only the edit,
/// which names the order. A return names its order too. Privacy requests name the customer and the shop
/// only in the body.
const LINES: &[RuleLine] = &[
    RuleLine {
        families: &["orders"],
        places: &["/id", "/order_edit/order_id", "/order_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &[
            "fulfillments",
            "refunds",
            "order_transactions",
            "fulfillment_events",
            "tender_transactions",
            "disputes",
        ],
        places: &["/order_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine { families: &["returns"], places: &["/order/id"], kind: EntityKind::Named("order") },
    RuleLine { families: &["customers"], places: &["/id", "/customer/id"], kind: EntityKind::Family },
    RuleLine { families: &["shop"], places: &["/id", "/shop_id"], kind: EntityKind::Family },
    RuleLine { families: &[], places: &["/id"], kind: EntityKind::Family },
];

const fn example(topic: &'static str, body: &'static str, entity: &'static str) -> Example {
    Example { header: Some(("x-shopify-topic", topic)), body, entity }
}

pub(super) const RULE: Rule = Rule {
    examples: &[
        example(
            "orders/updated",
            r##"{"id":7,"order_number":1007,"name":"#1007","admin_graphql_api_id":"gid://shopify/Order/7"}"##,
            "order/7",
        ),
        example("orders/edited", r#"{"order_edit":{"id":1,"order_id":7}}"#, "order/7"),
        example(
            "fulfillments/create",
            r##"{"id":2,"order_id":7,"name":"#1007.1","admin_graphql_api_id":"gid://shopify/Fulfillment/2"}"##,
            "order/7",
        ),
        example(
            "refunds/create",
            r#"{"id":3,"order_id":7,"admin_graphql_api_id":"gid://shopify/Refund/3"}"#,
            "order/7",
        ),
        example(
            "order_transactions/create",
            r#"{"id":4,"order_id":7,"admin_graphql_api_id":"gid://shopify/OrderTransaction/4"}"#,
            "order/7",
        ),
        example(
            "returns/approve",
            r#"{"id":5,"admin_graphql_api_id":"gid://shopify/Return/5","order":{"id":7,"admin_graphql_api_id":"gid://shopify/Order/7"}}"#,
            "order/7",
        ),
        example("products/update", r#"{"id":7,"admin_graphql_api_id":"gid://shopify/Product/7"}"#, "products/7"),
    ],
    reads: READS,
    facts: FACTS,
};

/// An EventBridge event that holds a webhook.
const ENVELOPE: Envelope =
    Envelope { body: "/detail/payload", headers: Some("/detail/metadata"), ..Envelope::EVENTBRIDGE };

/// The locations of an event's fields in Shopify's requests. A newer event may lack a webhook id; then the
/// event id, which is unique within a topic, identifies the delivery.
const READS: Reads = Reads {
    inlet: Inlet::WebhooksOrQueue(&[ENVELOPE]),
    delivery_id: &[
        IdPart::Account,
        IdPart::Topic,
        IdPart::At(&["shopify-webhook-id", "x-shopify-webhook-id", "shopify-event-id", "x-shopify-event-id"]),
    ],
    topic: &["shopify-topic", "x-shopify-topic"],
    account: &["shopify-shop-domain", "x-shopify-shop-domain", "/shop_domain"],
    event_time: &["/updated_at", "shopify-triggered-at", "x-shopify-triggered-at"],
    horizon: Some(Duration::from_secs(4 * 3600)),
    lines: LINES,
    failure_limit: Some(FailureLimit::At(8)),
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the app's client secret. For webhooks that you created in the admin, use the secret under *Settings → \
             Notifications → Webhooks*. Shopify may take up to an hour to use a new client secret",
    signing: None,
    signature: "`X-Shopify-Hmac-Sha256`, or `Shopify-Hmac-Sha256` for newer events: base64 HMAC-SHA256 of the body",
    signed: SignedParts::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(5)),
    retries: Some(8),
    switches_off: "Shopify deletes a subscription that was created through the API",
    checks: "none. The privacy topics `customers/data_request`, `customers/redact` and `shop/redact` are normal \
             deliveries. Shopify demands 401 for a wrong signature, and gets it",
    care: "Shopify also gives up when connecting takes more than 1 s. A retry has the payload of the first attempt. \
           Shopify does not promise order.",
    sources: &[
        "https://shopify.dev/docs/apps/build/webhooks/verify-deliveries",
        "https://shopify.dev/docs/apps/build/webhooks/subscribe/https",
        "https://shopify.dev/changelog/updates-to-webhook-retry-mechanism",
        "https://shopify.dev/docs/apps/build/privacy-law-compliance",
        "https://github.com/Shopify/shopify-app-js/blob/main/packages/apps/shopify-api/lib/webhooks/header-names.ts",
    ],
};

fn entity(request: Request<'_>, family: &str) -> Option<String> {
    let found = rule::find(LINES, family, request).or_else(|| {
        let id = header(request.headers, "resource-id")?;
        Some(rule::FoundEntity { kind: describe::is_known(family).then(|| family.to_owned()), id: id.to_owned() })
    })?;
    let is_order = found.id.starts_with("gid://shopify/Order/");
    let kind = if is_order { Some("order") } else { found.kind.as_deref() };
    Some(format!("{}/{}", kind?, bare(&found.id)))
}

/// Returns the number in a GraphQL global id such as `gid://shopify/Order/450789469`, or `id` itself.
fn bare(id: &str) -> &str {
    let typed = id.strip_prefix("gid://shopify/").and_then(|typed| typed.split_once('/'));
    typed.map(|(_, number)| number).filter(|number| !number.is_empty()).unwrap_or(id)
}

impl Provider for Shopify {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        let reason = "it is an access token; use the app's client secret, or the secret shown in the admin";
        signature::objection(secret, &["shpat_"], reason)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let sent = SIGNATURES.iter().find_map(|name| Some((*name, request.headers.get(name)?)));
        let (name, claimed) = sent.ok_or_else(|| Unverified::Missing(SIGNATURES[1].into()))?;
        let claimed = Encoding::Base64.read(name, claimed)?;
        signature::check(HashName::Sha256, secrets.iter().filter_map(HmacKey::of), &[request.body], &[claimed])?;
        Ok(Proof::DELIVERY)
    }

    /// Describes a request. In newer events, the topic header holds only the kind of object, and another
    /// header holds the action. The two are joined: `Order` and `update` become `Order/update`.
    fn describe(&self, request: Request<'_>) -> Described {
        let mut described = tables::describe(&READS, request);
        let action = request.headers.first("shopify-action");
        if let Some(action) = action
            && describe::is_known(&described.topic)
            && !described.topic.contains('/')
        {
            described.family = std::mem::take(&mut described.topic);
            described.topic = describe::topic(Some(&format!("{}/{action}", described.family)));
        }
        described.entity = entity(request, &described.family);
        described
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let Some(key) = HmacKey::of(secret) else { return Vec::new() };
        let is_newer = headers.iter().any(|(name, _)| name.starts_with("shopify-"));
        let name = SIGNATURES[if is_newer { 0 } else { 1 }];
        vec![(name.to_owned(), Encoding::Base64.encode(&HashName::Sha256.hmac(&key, &[body])))]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "shopify", header: Some("x-shopify-hmac-sha256".into()), ..PLAIN }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("shopify-customers-data-request.json", "example.myshopify.com/customers/data_request/305c139b-58ff-4dd0-b2eb-89e8cf7edbef", "customers/data_request", "customers", Some("example.myshopify.com"), Some(1_770_213_600_355), "customers/9007199254740995"),
        ("shopify-customers-redact.json", "example.myshopify.com/customers/redact/477882ea-436a-4b0b-9af3-9cdb2dcacc9f", "customers/redact", "customers", Some("example.myshopify.com"), Some(1_771_077_600_689), "customers/9007199254740995"),
        ("shopify-event-order-update.json", "example.myshopify.com/Order/8c47013c-1bb2-4836-96ec-01eecac6c899", "Order/update", "Order", Some("example.myshopify.com"), Some(1_767_712_501_000), "order/450789469"),
        ("shopify-fulfillments-create.json", "example.myshopify.com/fulfillments/create/f8d6264d-6740-4873-a54f-6e70408aca33", "fulfillments/create", "fulfillments", Some("example.myshopify.com"), Some(1_767_712_500_000), "order/450789469"),
        ("shopify-order-transactions-create.json", "example.myshopify.com/order_transactions/create/3f83c73d-2dbc-4a90-8114-2dae02dda59b", "order_transactions/create", "order_transactions", Some("example.myshopify.com"), Some(1_767_621_701_083), "order/450789469"),
        ("shopify-orders-cancelled.json", "example.myshopify.com/orders/cancelled/dbc3eca6-87e7-4589-af7f-99416438176e", "orders/cancelled", "orders", Some("example.myshopify.com"), Some(1_767_880_800_000), "order/450789469"),
        ("shopify-orders-create.json", "example.myshopify.com/orders/create/15e8d2f1-73e1-49d3-ac54-9a486645fdcd", "orders/create", "orders", Some("example.myshopify.com"), Some(1_767_621_601_000), "order/450789469"),
        ("shopify-orders-edited.json", "example.myshopify.com/orders/edited/2434a37d-7a8b-4f04-8c51-cc9517ae692d", "orders/edited", "orders", Some("example.myshopify.com"), Some(1_767_625_201_140), "order/450789469"),
        ("shopify-orders-paid.json", "example.myshopify.com/orders/paid/1da83e8a-c086-4c42-a7eb-e6adac5e357b", "orders/paid", "orders", Some("example.myshopify.com"), Some(1_767_621_700_000), "order/450789469"),
        ("shopify-orders-updated.json", "example.myshopify.com/orders/updated/f41673e5-771c-41ae-b218-549262a3f5b7", "orders/updated", "orders", Some("example.myshopify.com"), Some(1_767_712_501_000), "order/450789469"),
        ("shopify-refunds-create.json", "example.myshopify.com/refunds/create/2e04e520-97d1-406c-a777-5907d20cf181", "refunds/create", "refunds", Some("example.myshopify.com"), Some(1_767_801_600_660), "order/450789469"),
        ("queues/shopify-orders-paid.json", "example.myshopify.com/orders/paid/1da83e8a-c086-4c42-a7eb-e6adac5e357b", "orders/paid", "orders", Some("example.myshopify.com"), Some(1_767_621_700_000), "order/450789469"),
        ("shopify-shop-redact.json", "example.myshopify.com/shop/redact/ad2dcaed-784f-444b-9981-9957ceda05b0", "shop/redact", "shop", Some("example.myshopify.com"), Some(1_772_805_600_870), "shop/548380009"),
    ];

    const BODY: &[u8] = br#"{"id":450789469}"#;
    /// The signature from `printf '{"id":450789469}' | openssl dgst -sha256 -hmac
    /// shopify-development-secret -binary | base64`.
    const SIGNATURE: &str = "moNkC93zLeKKw+xXQ+WB/eO2g7KH7eH+mw1PkrxVPsw=";

    fn verify(headers: &[(&str, &str)], secrets: &[&str]) -> Result<Verified, Unverified> {
        tests::verify(&Shopify, headers, BODY, secrets, 0)
    }

    fn described(headers: &[(&str, &str)], body: &str) -> Described {
        tests::describe(&Shopify, headers, body)
    }

    fn entity_of(topic: &str, body: &str) -> Option<String> {
        described(&[("X-Shopify-Topic", topic)], body).entity
    }

    #[test]
    fn known_signature_verifies_under_either_header_name() {
        for name in ["X-Shopify-Hmac-Sha256", "Shopify-Hmac-Sha256"] {
            let headers = [(name, SIGNATURE)];
            assert_eq!(verify(&headers, &["shopify-development-secret"]), Ok(Verified::Delivery));
            assert_eq!(verify(&headers, &["next", "shopify-development-secret"]), Ok(Verified::Delivery));
        }
    }

    #[test]
    fn newer_shopify_header_names_take_precedence() {
        let headers = [("x-shopify-hmac-sha256", SIGNATURE), ("shopify-hmac-sha256", "AAAA")];
        assert_eq!(verify(&headers, &["shopify-development-secret"]), Err(Unverified::Mismatch));
        let headers = [("x-shopify-topic", "orders/create"), ("shopify-topic", "refunds/create")];
        assert_eq!(described(&headers, "{}").topic, "refunds/create");
    }

    #[test]
    fn signature_header_has_prefix_of_other_shopify_headers() {
        let now = Timestamp::from_secs(0);
        let secret = Secret::new("shopify-development-secret");
        for (given, expected) in
            [("X-Shopify-Topic", "x-shopify-hmac-sha256"), ("Shopify-Topic", "shopify-hmac-sha256")]
        {
            let headers = [(given, "orders/create")].into_iter().collect();
            let signed = Shopify.sign(&headers, BODY, &secret, now);
            assert_eq!(signed, [(expected.to_owned(), SIGNATURE.to_owned())]);
        }
    }

    #[test]
    fn shopify_access_token_is_refused_as_secret() {
        assert!(Shopify.objection(&Secret::new("shpat_0123456789abcdef")).unwrap().contains("client secret"));
        assert_eq!(Shopify.objection(&Secret::new("shpss_0123456789abcdef")), None);
    }

    #[test]
    fn order_topics_have_the_order_as_entity() {
        for (topic, body) in [
            ("orders/updated", r#"{"id":7}"#),
            ("orders/updated", r#"{"id":"gid://shopify/Order/7"}"#),
            ("fulfillment_events/create", r#"{"id":1,"order_id":7}"#),
            ("tender_transactions/create", r#"{"id":1,"order_id":7}"#),
            ("disputes/create", r#"{"id":1,"order_id":7}"#),
        ] {
            assert_eq!(entity_of(topic, body).as_deref(), Some("order/7"), "{topic} {body}");
        }
    }

    #[test]
    fn topics_without_order_have_the_object_as_entity() {
        for (topic, body, expected) in [
            ("products/update", r#"{"id":7}"#, Some("products/7")),
            ("tender_transactions/create", r#"{"id":3,"order_id":null}"#, Some("tender_transactions/3")),
            ("customers/redact", r#"{"shop_id":1,"customer":{"id":7}}"#, Some("customers/7")),
            ("shop/redact", r#"{"shop_id":1}"#, Some("shop/1")),
            ("inventory_levels/update", r#"{"inventory_item_id":1}"#, None),
            ("orders/create", "", None),
        ] {
            assert_eq!(entity_of(topic, body).as_deref(), expected, "{topic}");
        }
    }

    #[test]
    fn entity_missing_in_body_is_read_from_resource_header() {
        let about = |resource| {
            let headers = [("shopify-topic", "Anything"), ("shopify-resource-id", resource)];
            described(&headers, "{}").entity
        };
        assert_eq!(about("gid://shopify/Order/7").as_deref(), Some("order/7"));
        assert_eq!(about("gid://shopify/Product/7").as_deref(), Some("Anything/7"));
        assert_eq!(about(""), None);
    }

    #[test]
    fn shopify_global_id_is_reduced_to_the_number() {
        for (id, expected) in
            [("gid://shopify/Order/7", "7"), ("7", "7"), ("gid://shopify/Order/", "gid://shopify/Order/")]
        {
            assert_eq!(bare(id), expected);
        }
    }

    #[test]
    fn delivery_id_joins_shop_topic_and_webhook_id_or_hash() {
        let headers = [
            ("X-Shopify-Topic", "orders/create"),
            ("X-Shopify-Shop-Domain", "example.myshopify.com"),
            ("X-Shopify-Webhook-Id", "b54557e4"),
        ];
        assert_eq!(described(&headers, "{}").delivery_id.as_str(), "example.myshopify.com/orders/create/b54557e4");
        let by_body = described(&headers[..2], "{}").delivery_id;
        assert!(by_body.as_str().starts_with("example.myshopify.com/orders/create/sha256:"), "{by_body}");
    }

    #[test]
    fn event_time_in_body_takes_precedence_over_header() {
        let headers = [("x-shopify-topic", "orders/updated"), ("x-shopify-triggered-at", "2026-01-05T14:00:02.5Z")];
        let time = |body| described(&headers, body).event_time;
        let own = Timestamp::from_secs(1_767_621_600);
        assert_eq!(time(r#"{"updated_at":"2026-01-05T09:00:00-05:00"}"#), Some(own));
        assert_eq!(time(r#"{"updated_at":null}"#), Some(Timestamp::from_millis(own.as_millis() + 2_500)));
        assert_eq!(described(&[], "{}").event_time, None);
    }
}
