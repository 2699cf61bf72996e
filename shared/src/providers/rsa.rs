//! RSA keys as they are published, read into the one form that is verified with.
//! What a key signed is for [`Keys`](super::Keys) to say.

use base64::{Engine, engine::general_purpose::STANDARD};

/// An RSA public key: the `RSAPublicKey` of PKCS #1, in DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RsaKey(Vec<u8>);

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// The `AlgorithmIdentifier` of RSA keys (RFC 8017): `rsaEncryption`, no parameters.
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

impl RsaKey {
    /// Out of a `SubjectPublicKeyInfo` in DER, as certificates and `PUBLIC KEY`
    /// files have it; `None`: it is none, or of another kind of key.
    pub fn in_info(der: &[u8]) -> Option<Self> {
        let (info, []) = element(der, SEQUENCE)? else { return None };
        let (algorithm, rest) = element(info, SEQUENCE)?;
        let (bits, []) = element(rest, BIT_STRING)? else { return None };
        let (0, key) = bits.split_first()? else { return None };
        (algorithm == RSA).then(|| Self(key.to_vec()))
    }

    /// Out of the first `PUBLIC KEY` of a PEM file.
    pub(super) fn in_pem(pem: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(pem).ok()?;
        let (_, behind) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
        let (inside, _) = behind.split_once("-----END PUBLIC KEY-----")?;
        let letters: String = inside.split_ascii_whitespace().collect();
        Self::in_info(&STANDARD.decode(letters).ok()?)
    }

    /// Of its modulus and its exponent, the higher bytes first.
    pub(super) fn of_numbers(modulus: &[u8], exponent: &[u8]) -> Self {
        Self(encoded(SEQUENCE, &[encoded_number(modulus), encoded_number(exponent)].concat()))
    }

    /// The `RSAPublicKey`.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

/// The content of the element of that kind that `der` begins with, and what is
/// behind it.
fn element(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let [found, first, rest @ ..] = der else { return None };
    let (length, rest) = match *first {
        short @ ..=0x7f => (usize::from(short), rest),
        // Up to 16 MB, far beyond any key.
        long @ 0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    if *found == kind { rest.split_at_checked(length) } else { None }
}

fn encoded(kind: u8, content: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = content.len().to_be_bytes().into_iter().skip_while(|digit| *digit == 0).collect();
    let mut der = vec![kind];
    if content.len() > 0x7f {
        der.push(0x80 | digits.len() as u8);
    }
    der.extend(if content.is_empty() { vec![0] } else { digits });
    der.extend(content);
    der
}

fn encoded_number(bytes: &[u8]) -> Vec<u8> {
    let mut digits: Vec<u8> = bytes.iter().copied().skip_while(|digit| *digit == 0).collect();
    // With the highest bit set it would be negative.
    if digits.first().is_none_or(|digit| *digit > 0x7f) {
        digits.insert(0, 0);
    }
    encoded(INTEGER, &digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_one_key_are_one_key() {
        let modulus: Vec<u8> = (0x80..=0xff).chain(0x80..=0xff).collect();
        let key = RsaKey::of_numbers(&[&[0, 0], modulus.as_slice()].concat(), &[1, 0, 1]);
        let head = [0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00, 0x80, 0x81];
        assert!(key.as_der().starts_with(&head), "{:02x?}", &key.as_der()[..12]);
        assert!(key.as_der().ends_with(&[0xff, 0x02, 0x03, 0x01, 0x00, 0x01]));
        let bits = encoded(BIT_STRING, &[&[0], key.as_der()].concat());
        let info = encoded(SEQUENCE, &[encoded(SEQUENCE, RSA), bits].concat());
        assert_eq!(RsaKey::in_info(&info), Some(key.clone()));
        let text = STANDARD.encode(&info);
        let lines: Vec<&str> = [text.split_at(64).0, text.split_at(64).1].into();
        let pem = format!("a key\n-----BEGIN PUBLIC KEY-----\r\n{}\r\n-----END PUBLIC KEY-----\n", lines.join("\r\n"));
        assert_eq!(RsaKey::in_pem(pem.as_bytes()), Some(key));
        for cut in 0..info.len() {
            assert_eq!(RsaKey::in_info(&info[..cut]), None, "{cut}");
        }
        let longer = [info.as_slice(), &[0]].concat();
        assert_eq!(RsaKey::in_info(&longer), None);
    }

    #[test]
    fn a_key_of_another_kind_is_none() {
        let other = encoded(SEQUENCE, &[encoded(SEQUENCE, &[0x06, 0x03, 0x2b, 0x65, 0x70]), vec![3, 2, 0, 1]].concat());
        assert_eq!(RsaKey::in_info(&other), None);
        assert_eq!(RsaKey::in_pem(b"-----BEGIN PUBLIC KEY-----\n%%\n-----END PUBLIC KEY-----"), None);
        assert_eq!(RsaKey::in_pem(b"\xff"), None);
    }
}
