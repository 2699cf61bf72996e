//! Advice about handler names, which only the worker can check.

use std::collections::BTreeSet;

use webhook_serializer::{
    nearest,
    sources::{FAN_OUT, Sources},
};

use super::{Advice, Weight};

const READY_MADE: [&str; 4] = ["log", FAN_OUT, "forward", "invoke"];

pub fn of(sources: &Sources) -> Vec<Advice> {
    let names: BTreeSet<&str> = sources.iter().map(|source| source.handler.as_str()).collect();
    let own: Vec<&str> = names.iter().copied().filter(|name| !READY_MADE.contains(name)).collect();
    let mut advice = Vec::new();
    for source in sources.iter().filter(|source| !READY_MADE.contains(&source.handler.as_str())) {
        let handler = source.handler.as_str();
        let used_more = |name: &&str| {
            let count = |name: &str| sources.iter().filter(|source| source.handler == name).count();
            *name != handler && count(name) > count(handler)
        };
        let others = READY_MADE.into_iter().chain(own.iter().copied().filter(used_more));
        if let Some(near) = nearest::nearest(handler, others) {
            let text = format!("source `{}`: `handler` is `{handler}`; did you mean `{near}`?", source.name);
            advice.push(Advice { weight: Weight::Warning, text });
        }
    }
    if !own.is_empty() {
        let text = format!(
            "your own worker must have the handlers {}, or it does not start. The ready-made handlers are {}",
            own.join(", "),
            READY_MADE.join(", ")
        );
        advice.push(Advice { weight: Weight::Note, text });
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(handlers: &[&str]) -> Vec<(Weight, String)> {
        let mut document = String::new();
        for (number, handler) in (1..).zip(handlers) {
            document += &format!("[sources.s{number}]\nprovider = 'shopify'\nhandler = '{handler}'\n");
        }
        let sources = Sources::parse(&document).unwrap();
        of(&sources).into_iter().map(|advice| (advice.weight, advice.text)).collect()
    }

    #[test]
    fn misspelt_handler_is_warned_about() {
        let misspelt = advice(&["orders", "order", "orders"]);
        assert_eq!(
            misspelt[0],
            (Weight::Warning, "source `s2`: `handler` is `order`; did you mean `orders`?".to_owned())
        );
        let misspelt = advice(&["forwrad"]);
        assert_eq!(misspelt[0].1, "source `s1`: `handler` is `forwrad`; did you mean `forward`?");
    }

    #[test]
    fn custom_handlers_are_listed_in_a_note() {
        assert_eq!(advice(&["log"]), []);
        let listed = advice(&["totals", "log", "mails"]);
        let [(Weight::Note, text)] = &listed[..] else { panic!("{listed:?}") };
        assert!(
            text.starts_with("your own worker must have the handlers mails, totals, or it does not start. The ready-made handlers are log"),
            "{text}"
        );
    }
}
