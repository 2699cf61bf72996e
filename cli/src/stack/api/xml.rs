//! Parses the XML of CloudFormation, SNS and STS: elements and texts, without attributes.

use anyhow::{Context, Result, bail, ensure};
use xmlparser::{ElementEnd, Token, Tokenizer};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    text: String,
    children: Vec<Element>,
}

/// The deepest nesting of elements that is parsed. Answers of the services are not nested deeper.
const DEEPEST: usize = 64;

impl Element {
    pub fn parse(text: &str) -> Result<Self> {
        let mut open: Vec<Element> = Vec::new();
        let mut root = None;
        for token in Tokenizer::from(text) {
            match token.context("the answer is not XML")? {
                Token::ElementStart { local, .. } => {
                    ensure!(open.len() < DEEPEST, "the answer is nested too deeply");
                    open.push(Element { name: local.as_str().to_owned(), ..Element::default() });
                }
                Token::ElementEnd { end: ElementEnd::Open, .. } => {}
                Token::ElementEnd { .. } => {
                    let done = open.pop().context("the answer closes an element that it did not open")?;
                    match open.last_mut() {
                        Some(parent) => parent.children.push(done),
                        None => root = Some(done),
                    }
                }
                Token::Text { text } => open.last_mut().into_iter().for_each(|one| one.text += &unescaped(&text)),
                Token::Cdata { text, .. } => open.last_mut().into_iter().for_each(|one| one.text += text.as_str()),
                _ => {}
            }
        }
        match root {
            Some(root) if open.is_empty() => Ok(root),
            _ => bail!("the answer is incomplete"),
        }
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the element at the end of `path`. Each step takes the first element of that name.
    pub fn at(&self, path: &[&str]) -> Option<&Element> {
        path.iter().try_fold(self, |element, name| element.children.iter().find(|child| child.name == *name))
    }

    pub fn text(&self, path: &[&str]) -> &str {
        self.at(path).map_or("", |element| element.text.trim())
    }

    pub fn pairs(&self, path: &[&str], [key, value]: [&str; 2]) -> Vec<(String, String)> {
        let list = self.at(path).map(|list| list.children.iter()).unwrap_or_default();
        list.map(|one| (one.text(&[key]).to_owned(), one.text(&[value]).to_owned())).collect()
    }
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        plain += before;
        let Some((name, after)) = behind.split_once(';') else { break };
        let code = name.strip_prefix("#x").map(|hex| u32::from_str_radix(hex, 16));
        let code = code.or_else(|| name.strip_prefix('#').map(str::parse));
        plain.extend(match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => code.and_then(Result::ok).and_then(char::from_u32),
        });
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_response_is_parsed_to_elements() {
        let text = r#"<?xml version="1.0"?><a:R xmlns="x"><L><member><K> one </K><V>1 &lt; 2 &amp;&#x21;</V></member><member><K>two</K><V/></member></L></a:R>"#;
        let root = Element::parse(text).unwrap();
        let pairs = root.pairs(&["L"], ["K", "V"]);
        assert_eq!(pairs, [("one".into(), "1 < 2 &!".into()), ("two".into(), String::new())]);
        assert_eq!((root.text(&["L", "member", "K"]), root.text(&["L", "none"])), ("one", ""));
        assert_eq!(root.at(&["L"]).unwrap().all("member").count(), 2);
    }

    #[test]
    fn incomplete_xml_is_refused() {
        for text in ["", "<a>", "<a><b></b>", "{}", "</a>"] {
            assert!(Element::parse(text).is_err(), "{text}");
        }
    }
}
