//! `serializer source rotate`, while webhooks signed with the old and the new secret
//! arrive at instances that refresh at different times.

use serializer::document::DocumentText;
use tests::prelude::*;
use webhook_serializer::sources::{REFRESH, SPACING, STALE};

use super::{NEW, OLD, ingest, pass, post, settle};
use crate::script::{ScriptedDocument, document};

/// Edits `text` as the command does.
fn edited(text: &str, edit: impl FnOnce(&mut DocumentText) -> anyhow::Result<()>) -> String {
    let mut document = DocumentText::parse(text).unwrap();
    edit(&mut document).unwrap();
    let text = document.to_string();
    Sources::parse(&text).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn secret_rotation_accepts_both_secrets() {
    let world = TestWorld::new();
    let script = ScriptedDocument::new(&[("shop", OLD)]);
    // The instances refresh at different times. The last one is idle most of the time.
    let mut instances = Vec::new();
    for _ in 0..3 {
        instances.push(ingest(&world, &script).await.0);
        pass(Duration::from_secs(17)).await;
    }
    let mut accepted = 0_u64;
    let mut phase = async |name: &str, secrets: &[&str], moments: &[Duration]| {
        for (moment, waited) in moments.iter().enumerate() {
            pass(*waited).await;
            for (instance, ingest) in instances.iter().enumerate() {
                if instance == 2 && moment % 4 != 0 {
                    continue;
                }
                for secret in secrets {
                    let webhook = post(&world, secret, &format!("{name}-{moment}-{instance}-{secret}"));
                    let answer = ingest.answer(&webhook).await;
                    assert_eq!(answer.status_code, 200, "{name} {moment} {instance}: {}", answer.body);
                    accepted += 1;
                }
            }
            settle().await;
        }
    };
    let second = Duration::from_secs(1);
    let some = [1, 4, 20, 31, 59, 60, 61, 299, 300, 301, 2];
    let moments: Vec<Duration> = some.iter().map(|seconds| second * *seconds).collect();
    phase("before", &[OLD], &moments).await;

    let before = document(&[("shop", OLD)]);
    let both = edited(&before, |text| text.put_first("shop", "secrets", &format!("whsec_{NEW}")));
    script.set_text(both.clone());
    // The first webhook arrives right after the document is written.
    phase("written", &[OLD], &[Duration::ZERO, second]).await;
    // The sender switches after the wait that the command asks for. Its retries use the old secret for much
    // longer.
    let switched: Vec<Duration> = [REFRESH].into_iter().chain(moments.iter().copied()).collect();
    phase("overlap", &[NEW, OLD], &switched).await;

    script.set_text(edited(&both, |text| text.take_out("shop", "secrets", 1)));
    phase("finished", &[NEW], &[Duration::ZERO, second, SPACING, REFRESH, STALE]).await;
    phase("after", &[NEW], &moments).await;

    assert_eq!(accepted, (11 + 2 + 2 * 12 + 5 + 11) * 2 + (3 + 1 + 2 * 3 + 2 + 3));
    assert_eq!(world.state("shop/order/1").await.waiting(), accepted, "an accepted webhook is missing");
    pass(STALE).await;
    assert_eq!(instances[0].answer(&post(&world, OLD, "late")).await.status_code, 401, "the old secret is refused");
}
