//! Recognises secrets that a forger can guess: placeholders from pages such as this project's, references that
//! nothing resolved, and secrets that are too short.
//!
//! A signature under such a secret proves nothing, so ingest treats it as if it were not configured.

use super::{Encoding, Secret};

/// The least length of a key, in bytes.
const SHORTEST: usize = 8;

const QUOTES: [char; 7] = ['"', '\'', '`', '“', '”', '«', '»'];

const SHORT: &str = "has fewer than 8 characters, so it can be guessed";
const PLACEHOLDER: &str = "is a placeholder";
const REFERENCE: &str = "is a reference that nothing has replaced by its value";

/// The prefix of secrets that encode a key in base64, and of Stripe's secrets, which are text.
const PREFIX: &str = "whsec_";

/// The words of which placeholders consist, such as `YOUR_WEBHOOK_SECRET` or `changeme`. A secret of these words
/// alone, and at most six digits at its end, is a placeholder. The words of one initial stand together, because ingest
/// reads each secret whenever it starts.
const WORDS: [&str; 26] = [
    "0",
    "256",
    "a abc add admin and api app aws",
    "bar baz bit bits",
    "cafebabe change changeit client code",
    "dashboard deadbeef default demo do dummy",
    "endpoint example",
    "fake fill fixme foo from",
    "gcp go goes",
    "here hidden hmac hush",
    "id in insert is it",
    "key",
    "letmein live",
    "me my",
    "name none not null",
    "of on one or",
    "passw0rd password paste paypal pk placeholder please polar private put",
    "qwerty qwertyuiop",
    "real redacted removed replace rk",
    "s sample secret secrets set shared shippo shop shopify shpss sign signature signing sk some square string stripe super",
    "tbd test testing text the this to todo token top",
    "undefined unset use",
    "value",
    "webhook webhooks whs whsec with woocommerce",
    "x",
    "yet you your yours",
];

/// The beginnings of references that consist of the whole text.
const REFERENCES: [&str; 31] = [
    "arn:",
    "awssm://",
    "awsssm://",
    "env:",
    "env.",
    "ENV.fetch(",
    "file:",
    "op://",
    "sm://",
    "gcp-sm://",
    "sops:",
    "os.environ",
    "os.getenv",
    "process.env",
    "import.meta.env",
    "secretsmanager:",
    "ssm:",
    "var.",
    "vault:",
    "ENC[",
    "ENV[",
    "ref+",
    "resolve:",
    "@Microsoft.KeyVault(",
    "projects/",
    "https://",
    "/run/secrets/",
    "!Ref",
    "!Sub",
    "!GetAtt",
    "!ImportValue",
];

/// The marks around references that templates replace.
const ENCLOSED: [(&str, &str); 7] =
    [("${", "}"), ("#{", "}"), ("{{", "}}"), ("$(", ")"), ("<%", "%>"), ("%(", ")s"), ("%env(", ")%")];

/// Returns what makes `secret` guessable, or `None` if nothing is known to.
pub(super) fn guessable(secret: &Secret) -> Option<&'static str> {
    let Some(text) = secret.text() else {
        let text = std::str::from_utf8(secret.expose()).ok().filter(|text| !text.contains(char::is_control));
        let is_written =
            text.is_some_and(|text| is_placeholder(text) || is_reference(text)) || is_regular(secret.expose());
        return if is_written { Some(PLACEHOLDER) } else { (secret.expose().len() < SHORTEST).then_some(SHORT) };
    };
    let bare = text.trim().trim_matches(QUOTES);
    let (bare, is_encoded) = bare.strip_prefix(PREFIX).map_or((bare, false), |bare| (bare, true));
    let decoded = Encoding::Base64.decode(bare).filter(|_| is_encoded);
    let inner = decoded.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    if is_reference(bare) {
        return Some(REFERENCE);
    }
    if is_placeholder(bare) || inner.is_some_and(is_placeholder) {
        return Some(PLACEHOLDER);
    }
    // Without padding, the text may be the key itself: Stripe's secrets have the same prefix.
    let length = decoded.filter(|_| bare.ends_with('=')).map_or(bare.len(), |decoded| decoded.len());
    (length < SHORTEST).then_some(SHORT)
}

/// Returns whether the bytes of a key are evenly spaced, as in `00112233`, or repeat the same one to four bytes.
fn is_regular(key: &[u8]) -> bool {
    let mut steps = key.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let first = steps.next();
    let repeats = |period: usize| key.iter().zip(key.iter().skip(period)).all(|(one, other)| one == other);
    key.len() >= SHORTEST && (steps.all(|step| Some(step) == first) || (2..=4).any(repeats))
}

/// Returns whether `text` goes through the digits, or on through the letters, one by one.
fn is_counted(text: &str) -> bool {
    const ORDERS: [&[u8]; 4] =
        [b"01234567890", b"09876543210", b"0123456789abcdefghijklmnopqrstuvwxyz", b"abcdefghijklmnopqrstuvwxyz"];
    let next_to = |order: &[u8], pair: &[u8]| order.windows(2).any(|next| next == pair);
    text.len() >= SHORTEST
        && (ORDERS.iter().any(|order| text.as_bytes().windows(2).all(|pair| next_to(order, pair)))
            || text.bytes().all(|byte| byte.is_ascii_digit() && byte == text.as_bytes()[0]))
}

/// Returns whether `id`, which a sender's web page shows, is a placeholder or a reference.
pub fn is_placeholder_id(id: &str) -> bool {
    is_reference(id) || is_placeholder(id)
}

fn is_placeholder(text: &str) -> bool {
    let is_written = |text: &str| text.chars().all(|c| c.is_alphanumeric() || " _-.'…".contains(c));
    let is_bracketed = [("<", ">"), ("[", "]"), ("{", "}"), ("(", ")"), ("‹", "›"), ("＜", "＞")]
        .iter()
        .any(|(open, close)| text.strip_prefix(open).and_then(|text| text.strip_suffix(close)).is_some_and(is_written));
    let is_elided = || text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-.*=".contains(&c));
    let mut plain = String::with_capacity(text.len());
    plain.extend(text.bytes().filter(u8::is_ascii_alphanumeric).map(|c| char::from(c.to_ascii_lowercase())));
    let words = plain.trim_end_matches(|c: char| c.is_ascii_digit());
    let words = if plain.len() - words.len() <= 6 { words } else { &plain };
    is_bracketed
        || is_counted(&plain)
        || (!text.is_ascii() && ["…", "•••"].iter().any(|mark| text.contains(mark)))
        || (text.as_bytes().windows(3).any(|mark| mark == b"..." || mark == b"***") && is_elided())
        || !text.chars().any(char::is_alphanumeric)
        || (text.is_ascii() && (1..=64).contains(&words.len()) && consists_of_words(words.as_bytes()))
}

fn consists_of_words(text: &[u8]) -> bool {
    let Some(initial) = text.first() else { return true };
    let words = WORDS.iter().map(|words| words.as_bytes()).filter(|words| words.first() == Some(initial));
    let mut words = words.flat_map(|words| words.split(|byte| *byte == b' '));
    words.any(|word| text.strip_prefix(word).is_some_and(consists_of_words))
}

/// Returns whether `text` refers to a value that a shell, a template or a deployment should have put in its place.
fn is_reference(text: &str) -> bool {
    let is_name = |text: &str| {
        let is_letter = |c: char| c.is_ascii_uppercase() || c == '_';
        text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
    };
    let inside = |mark: char| text.strip_prefix(mark).map(|rest| rest.strip_suffix(mark).unwrap_or(rest));
    let is_path = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_.:/ -=\"'[]|@".contains(c));
    let is_enclosed = |(open, close): &(&str, &str)| {
        text.strip_prefix(open).and_then(|text| text.strip_suffix(close)).is_some_and(is_path)
    };
    ENCLOSED.iter().any(is_enclosed)
        || REFERENCES.iter().any(|prefix| text.starts_with(prefix))
        || ['$', '%'].into_iter().any(|mark| inside(mark).is_some_and(is_name))
        || text.strip_prefix("$env:").is_some_and(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(secret: &str) -> Option<&'static str> {
        guessable(&Secret::new(secret).decoded().unwrap())
    }

    #[test]
    fn placeholder_is_guessable() {
        let written =
            "… whsec_… ... whsec_... sk-…-long <secret> <YOUR_WEBHOOK_SECRET> [secret] {secret} -------- ********
            whsec_******** •••••••• whsec_ your_secret YOUR_WEBHOOK_SECRET whsec_your_secret_here your-signing-key
            changeme CHANGE_ME replace-me REPLACE_WITH_YOUR_SECRET my-secret-token webhook_secret test-secret secret123
            xxxxxxxx whsec_xxxxxxxxxxxxxxxxxxxxxxxx 00000000 12345678 1234567890 0123456789 placeholder undefined
            whsec_Y2hhbmdlbWU= whsec_c2VjcmV0LXRva2Vu topsecret shopify-secret insert_here test1234 password Passw0rd
            shpss_xxxxxxxxxxxxxxxxxxxx sk_test_xxxxxxxxxxxx polar_whs_YOUR_SECRET changeme12345 not-a-real-secret
            example-secret-do-not-use paste-the-secret-from-the-dashboard “your_secret” «your-secret» 'your-secret'
            11111111 abcdefgh 87654321 qwertyuiop admin123 letmein123 base64:Y2hhbmdlLW1lLXBsZWFzZQ==
            hex:6368616e67656d65 hex:0101010101010101 hex:deadbeefdeadbeefdeadbeef hex:000102030405060708090a0b0c0d0e0f
            deadbeef cafebabe none-yet DEADBEEF00 0123456789abcdef abcdefghijklmnop
            hex:0123456789abcdef hex:00112233445566778899aabbccddeeff 12345678901234567890123456789012
            your-256-bit-secret ‹secret› ＜secret＞";
        let spaced = ["", " ", "\t\n", "\u{200b}", "super secret key", "insert your secret here", "<your secret>"];
        for secret in written.split_whitespace().chain(spaced) {
            assert_eq!(of(secret), Some(PLACEHOLDER), "{secret:?}");
        }
    }

    #[test]
    fn unresolved_reference_is_guessable() {
        let written =
            "${SECRET} ${env.SECRET} $SECRET $STRIPE_WEBHOOK_SECRET {{secret}} %SECRET% op://vault/shopify/secret
            {{resolve:secretsmanager:shop:SecretString:key}} {{resolve:ssm-secure:/shop/secret:1}} process.env.SECRET
            arn:aws:secretsmanager:eu-central-1:123456789012:secret:shop-a1b2c3 whsec_${SECRET} env:SHOP_SECRET
            #{ENV_SECRET} ENC[AES256_GCM,data:x] @Microsoft.KeyVault(VaultName=a) sm://shop sops:shop ENV['SECRET']
            projects/p/secrets/shop/versions/latest https://shop.vault.azure.net/secrets/shop
            os.getenv('X') import.meta.env.X /run/secrets/webhook $env:SECRET %env(SECRET)% ENV.fetch(\"SECRET\")
            resolve:ssm:/shop ref+awsssm://x/y awssm://shop";
        for secret in written.split_whitespace().chain(["$(cat secret.txt)", "{{ secret }}", "!Ref Secret", "<%= x %>"])
        {
            assert_eq!(of(secret), Some(REFERENCE), "{secret:?}");
        }
    }

    #[test]
    fn short_secret_is_guessable() {
        for secret in "k hunter2 whsec_kq8 whsec_kq8fzA== hex:00 hex:0011aabbccddee base64:AA==".split(' ') {
            assert_eq!(of(secret), Some(SHORT), "{secret:?}");
        }
        assert!(of("whsec_YQ==").is_some());
    }

    #[test]
    fn random_secret_is_not_guessable() {
        let written = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw shpss_0123456789abcdef0123456789abcdef kq8fzA1c
            hex:0011aabbccddeeff hex:deadbeef0badcafe qfjakbt2uWB8DKAMECF-EA a-test-secret-0123456789 whsec_bbbbbbbbbbbb arne:4711-kq8fz
            polar_whs_abcdef0123456789 p@$$w%rd{9}<q /Xu9+3$4kQ whsec_test_a1b2c3d4e5f6 shopify-development-secret
            ñandú-größe";
        for secret in written.split_whitespace().chain(["It's a Secret to Everybody", "correct horse battery staple"]) {
            assert_eq!(of(secret), None, "{secret:?}");
        }
    }

    /// WooCommerce makes a secret of 50 characters from these.
    #[test]
    fn secrets_that_woocommerce_makes_are_not_guessable() {
        let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!@#$%^&*()-_ []{}<>~`+=,.;:/?|";
        let letters: Vec<char> = letters.chars().collect();
        let mut state = 1_u64;
        let mut draw = || {
            // The constants are Knuth's, for MMIX.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            letters[(state >> 33) as usize % letters.len()]
        };
        for _ in 0..10_000 {
            let secret: String = (0..50).map(|_| draw()).collect();
            assert_eq!(of(&secret), None, "{secret:?}");
        }
    }

    #[test]
    fn placeholder_ids_are_recognised() {
        for id in ["WEBHOOK_ID", "YOUR_WEBHOOK_ID", "…", "<id>", "${WEBHOOK_ID}", " ", "webhook-id"] {
            assert!(is_placeholder_id(id), "{id:?}");
        }
        for id in ["8PT597110X687430LKGECATA", "4fc8b9b2d2f14f4e8f6f3a6d1b1c0a55", "WID", "1"] {
            assert!(!is_placeholder_id(id), "{id:?}");
        }
    }
}
