//! Variants of a signature header that may be doubled or encoded wrongly, each with the mistake that it corrects.

use base64::{Engine, engine::general_purpose::STANDARD};

/// The length of the shortest signature in characters: an HMAC-SHA-1 in base64 without padding.
const SHORTEST: usize = 27;

/// The lengths of HMACs in bytes.
const HMACS: [usize; 3] = [20, 32, 64];

/// Returns variants of a header's value, each with a text that names the mistake. A variant is the value with one of
/// its signatures converted to another encoding.
pub(super) fn variants(value: &str) -> Vec<(String, &'static str)> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+/_-".contains(c);
    let mut found = Vec::new();
    if let Some((first, others)) = value.split_once(',')
        && others.split(',').all(|other| other.trim() == first.trim())
    {
        found.push((first.trim().to_owned(), "comes twice, and Lambda joins its values by a comma: send it once"));
    }
    let mut from = 0;
    while let Some(start) = value[from..].find(is_letter).map(|at| from + at) {
        let letters = value[start..].find(|c| !is_letter(c)).map_or(value.len(), |at| start + at);
        let end = value[letters..].find(|c| c != '=').map_or(value.len(), |at| letters + at);
        if letters - start >= SHORTEST {
            for (other, what) in encodings(&value[start..end]) {
                found.push((format!("{}{other}{}", &value[..start], &value[end..]), what));
            }
        }
        from = end;
    }
    found
}

fn encodings(text: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    if let Some(bytes) = from_hex(text).filter(|bytes| HMACS.contains(&bytes.len())) {
        found.push((STANDARD.encode(bytes), "is in hexadecimal, but must be in base64"));
    }
    let standard = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    let padded = format!("{standard}{}", "=".repeat((4 - standard.len() % 4) % 4));
    if let Ok(bytes) = STANDARD.decode(padded) {
        if HMACS.contains(&bytes.len()) {
            found.push((to_hex(&bytes), "is in base64, but must be in hexadecimal"));
        }
        if let Some(inner) = std::str::from_utf8(&bytes).ok().and_then(from_hex) {
            let what = "is the hexadecimal text encoded once more: encode the HMAC's bytes directly";
            found.push((STANDARD.encode(&inner), what));
            found.push((to_hex(&inner), what));
        }
    }
    found
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2) && !digits.is_empty())?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_value_is_converted_between_hex_and_base64() {
        let hex = "00".repeat(32);
        let base64 = STANDARD.encode([0; 32]);
        let texts = |value: String| variants(&value).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        assert_eq!(texts(format!("t=1767621700,v1={base64}")), [format!("t=1767621700,v1={hex}")]);
        assert_eq!(texts(format!("sha256={hex}")), [format!("sha256={base64}")]);
        let twice = STANDARD.encode(&hex);
        assert_eq!(texts(twice)[1..], [base64, hex]);
        assert_eq!(texts("application/json; charset=utf-8".into()), [""; 0]);
    }
}
