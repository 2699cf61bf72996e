//! How a sender signs with a shared secret, as data. Verification, samples, the page about providers and the shared
//! test cases follow from it. `generic` reads it from the configuration.

use std::borrow::Cow;

use super::{
    Encoding, HashName, Headers, Proof, Request, Unverified, event_time,
    signature::{self, HmacKey},
};
use crate::time::Timestamp;

/// A text of a built-in provider, or of a configuration.
pub(super) type Text = Cow<'static, str>;

/// An HMAC in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signing {
    /// The header with the signature, as the sender's documentation writes it.
    pub header: Text,
    pub hash: HashName,
    pub encoding: Encoding,
    /// The text before each signature, such as `sha256=`. Entries with another prefix are ignored.
    pub prefix: Text,
    /// The text between the entries of the header. With `None`, the whole value is one signature.
    pub separator: Option<Text>,
    pub time: Option<TimePlace>,
    pub signed: Cow<'static, [Part]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(Text),
    Body,
    Time,
    /// The value of a header, whose name is in lower case.
    Header(Text),
}

/// The place of the signed time: seconds, milliseconds or RFC 3339.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimePlace {
    /// A header, whose name is in lower case.
    Header(Text),
    /// The entry of the signature header with this prefix.
    Entry(Text),
}

impl Signing {
    /// The most common form: base64 of the body's HMAC-SHA256. `header` is still empty.
    pub const BODY: Self = Self {
        header: Cow::Borrowed(""),
        hash: HashName::Sha256,
        encoding: Encoding::Base64,
        prefix: Cow::Borrowed(""),
        separator: None,
        time: None,
        signed: Cow::Borrowed(&[Part::Body]),
    };

    /// The form `t=…,v1=…`: hexadecimal, of the time, a dot and the body.
    pub const STAMPED: Self = Self {
        encoding: Encoding::Hex,
        prefix: Cow::Borrowed("v1="),
        separator: Some(Cow::Borrowed(",")),
        time: Some(TimePlace::Entry(Cow::Borrowed("t="))),
        signed: Cow::Borrowed(&[Part::Time, Part::Text(Cow::Borrowed(".")), Part::Body]),
        ..Self::BODY
    };

    /// Returns the signature header's name in lower case.
    pub(super) fn name(&self) -> String {
        self.header.to_ascii_lowercase()
    }

    /// Verifies that one of `keys` made a signature of the request.
    pub(super) fn verify(
        &self,
        request: Request<'_>,
        keys: impl Iterator<Item = HmacKey>,
    ) -> Result<Proof, Unverified> {
        self.verify_by(request, |parts, claimed| signature::check(self.hash, keys, parts, claimed))
    }

    /// Verifies a request by `check`, which gets the signed parts and the signatures in the header.
    pub(super) fn verify_by(
        &self,
        request: Request<'_>,
        check: impl FnOnce(&[&[u8]], &[Vec<u8>]) -> Result<(), Unverified>,
    ) -> Result<Proof, Unverified> {
        let name = self.name();
        let value = request.headers.required(&name)?;
        let time = self.time(&name, request.headers)?;
        let signed_at = match time {
            Some((text, from)) => Some(event_time::parse(text).ok_or_else(|| Unverified::malformed(from))?),
            None => None,
        };
        let with_prefix = self.entries(value).filter_map(|entry| entry.strip_prefix(&*self.prefix));
        let claimed: Vec<_> = with_prefix.filter_map(|text| self.encoding.decode(text.trim())).collect();
        if claimed.is_empty() {
            return Err(Unverified::Malformed(name));
        }
        let parts = self.parts(time.map_or("", |(text, _)| text), request)?;
        check(&parts, &claimed)?;
        Ok(Proof { signed_at, ..Proof::DELIVERY })
    }

    /// Signs `body`. A signed header that `headers` lacks is signed as empty, and returned with an empty value.
    pub(super) fn sign(&self, headers: &Headers, body: &[u8], key: &HmacKey, now: Timestamp) -> Vec<(String, String)> {
        self.sign_by(headers, body, now, |parts| Some(self.hash.hmac(key, parts)))
    }

    /// Signs `body` by `signature`, which gets the signed parts. Returns nothing if `signature` returns `None`.
    pub(super) fn sign_by(
        &self,
        headers: &Headers,
        body: &[u8],
        now: Timestamp,
        signature: impl FnOnce(&[&[u8]]) -> Option<Vec<u8>>,
    ) -> Vec<(String, String)> {
        let time = signature::seconds_text(now);
        let mut sent = Vec::new();
        if let Some(TimePlace::Header(name)) = &self.time {
            sent.push((name.to_string(), time.clone()));
        }
        for part in &*self.signed {
            if let Part::Header(name) = part
                && headers.get(name).is_none()
                && sent.iter().all(|(held, _)| held != name)
            {
                sent.push((name.to_string(), String::new()));
            }
        }
        let with_sent =
            sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(headers.iter()).collect();
        let Ok(parts) = self.parts(&time, Request { headers: &with_sent, body }) else { return Vec::new() };
        let Some(signature) = signature(&parts) else { return Vec::new() };
        let signature = format!("{}{}", self.prefix, self.encoding.encode(&signature));
        let value = match (&self.time, &self.separator) {
            (Some(TimePlace::Entry(of_time)), Some(separator)) => format!("{of_time}{time}{separator}{signature}"),
            _ => signature,
        };
        sent.push((self.name(), value));
        sent
    }

    fn entries<'a>(&self, value: &'a str) -> impl Iterator<Item = &'a str> {
        let list: Vec<&str> = match &self.separator {
            Some(separator) => value.split(&**separator).collect(),
            None => vec![value],
        };
        list.into_iter().map(str::trim)
    }

    /// Returns the text of the signed time, and the name of the header that holds it.
    fn time<'a>(&'a self, name: &'a str, headers: &'a Headers) -> Result<Option<(&'a str, &'a str)>, Unverified> {
        Ok(match &self.time {
            None => None,
            Some(TimePlace::Header(name)) => Some((headers.required(name)?, name)),
            Some(TimePlace::Entry(prefix)) => {
                let found = self.entries(headers.required(name)?).find_map(|entry| entry.strip_prefix(&**prefix));
                Some((found.ok_or_else(|| Unverified::malformed(name))?, name))
            }
        })
    }

    fn parts<'a>(&'a self, time: &'a str, request: Request<'a>) -> Result<Vec<&'a [u8]>, Unverified> {
        let bytes = |part: &'a Part| match part {
            Part::Text(text) => Ok(text.as_bytes()),
            Part::Body => Ok(request.body),
            Part::Time => Ok(time.as_bytes()),
            Part::Header(name) => request.headers.required(name).map(str::as_bytes),
        };
        self.signed.iter().map(bytes).collect()
    }

    /// Returns a description for the page about providers, such as *`X-A: sha256=…`: hexadecimal HMAC-SHA256 of the
    /// body*.
    pub fn describe(&self) -> String {
        let entry = match (&self.time, &self.separator, &*self.prefix) {
            (Some(TimePlace::Entry(time)), Some(separator), prefix) => format!(": {time}…{separator}{prefix}…"),
            (_, _, "") => String::new(),
            (_, _, prefix) => format!(": {prefix}…"),
        };
        let encoding = match self.encoding {
            Encoding::Hex => "hexadecimal",
            Encoding::Base64 => "base64",
        };
        let hash = match self.hash {
            HashName::Sha1 => "SHA1",
            HashName::Sha256 => "SHA256",
            HashName::Sha512 => "SHA512",
        };
        let part = |part: &Part| match part {
            Part::Text(text) if text == "." => "a dot".to_owned(),
            Part::Text(text) => format!("`{text}`"),
            Part::Body => "the body".to_owned(),
            Part::Time => "the time".to_owned(),
            Part::Header(name) => format!("the header `{name}`"),
        };
        let parts: Vec<String> = self.signed.iter().map(part).collect();
        let parts = match parts.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        };
        format!("`{}{entry}`: {encoding} HMAC-{hash} of {parts}", self.header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_names_header_form_and_parts() {
        let github = Signing {
            header: "X-Hub-Signature-256".into(),
            encoding: Encoding::Hex,
            prefix: "sha256=".into(),
            ..Signing::BODY
        };
        assert_eq!(github.describe(), "`X-Hub-Signature-256: sha256=…`: hexadecimal HMAC-SHA256 of the body");
        let stamped = Signing { header: "A".into(), ..Signing::STAMPED };
        assert_eq!(stamped.describe(), "`A: t=…,v1=…`: hexadecimal HMAC-SHA256 of the time, a dot and the body");
        let signed = Cow::Owned(vec![Part::Text("v0:".into()), Part::Header("x-id".into())]);
        let parts = Signing { hash: HashName::Sha512, signed, ..Signing::BODY };
        assert_eq!(parts.describe(), "``: base64 HMAC-SHA512 of `v0:` and the header `x-id`");
    }
}
