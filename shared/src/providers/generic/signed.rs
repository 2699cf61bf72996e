//! The template of the text that a generic sender signs, such as `{timestamp}.{body}`.

use super::InvalidGeneric;
use crate::providers::signing::Part;

pub(super) fn parse(template: &str) -> Result<Vec<Part>, InvalidGeneric> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (text, braced) = rest.split_at(at);
        let unknown = |text: &str| InvalidGeneric::Placeholder(text.to_owned());
        let end = braced.find('}').map_or(braced.len(), |end| end + 1);
        let (placeholder, behind) = braced.split_at(end);
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned().into()));
        }
        parts.push(match placeholder {
            "{body}" => Part::Body,
            "{timestamp}" => Part::Time,
            _ => {
                let name = placeholder.strip_prefix("{header:").and_then(|name| name.strip_suffix('}'));
                Part::Header(name.and_then(header_name).ok_or_else(|| unknown(placeholder))?.into())
            }
        });
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned().into()));
    }
    if parts.contains(&Part::Body) { Ok(parts) } else { Err(InvalidGeneric::BodyUnsigned) }
}

pub(super) fn header_name(text: &str) -> Option<String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (!text.is_empty() && text.bytes().all(is_token)).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_template_is_parsed_to_text_and_placeholders() {
        let signed = parse("v0:{timestamp}:{header:X-Id}{body}!").unwrap();
        let expected = [
            Part::Text("v0:".into()),
            Part::Time,
            Part::Text(":".into()),
            Part::Header("x-id".into()),
            Part::Body,
            Part::Text("!".into()),
        ];
        assert_eq!(signed, expected);
        assert_eq!(parse("{body}").unwrap(), [Part::Body]);
    }
}
