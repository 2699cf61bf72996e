//! The forms of messages that receivers take.
//!
//! An order's key and an error can contain any text, so each form keeps markup and mentions from having an effect:
//!
//! - Slack: the characters `&`, `<` and `>` are escaped, and `mrkdwn` is off
//!   (<https://api.slack.com/reference/surfaces/formatting>).
//! - Teams: an Adaptive Card, whose `TextRun` takes no Markdown and whose mentions need `entities`
//!   (<https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using>,
//!   <https://adaptivecards.io/explorer/TextRun.html>).
//! - Discord: a block of code, and no mention is allowed. The content has at most 2,000 characters
//!   (<https://discord.com/developers/docs/resources/webhook#execute-webhook>).
//! - A webhook: JSON, signed as Standard Webhooks says (<https://www.standardwebhooks.com/>).

use serde_json::{Value, json};

use super::message::AlertMessage;
use crate::{sources::alerts::AlertForm, time::Timestamp};

/// The most bytes of a text. Discord's limit is 2,000 characters; the others take more.
const LONGEST_TEXT: usize = 3800;
const LONGEST_DISCORD: usize = 1900;

/// Returns the body of the request that sends the message.
pub fn body(form: AlertForm, message: &AlertMessage, now: Timestamp) -> Value {
    match form {
        AlertForm::Slack => {
            let text = message.text(LONGEST_TEXT);
            let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            json!({ "text": escaped, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false })
        }
        AlertForm::Teams => card(&message.text(LONGEST_TEXT)),
        AlertForm::Discord => {
            // A backtick could end the block of code.
            let text = message.text(LONGEST_DISCORD).replace('`', "'");
            json!({ "content": format!("```\n{text}\n```"), "allowed_mentions": { "parse": [] } })
        }
        AlertForm::Webhook => {
            let mut data = message.data.clone();
            data["text"] = message.text(LONGEST_TEXT).into();
            json!({ "type": "serializer.alert", "timestamp": now.to_string(), "data": data })
        }
    }
}

/// Returns a message with an Adaptive Card that has a paragraph for each line.
fn card(text: &str) -> Value {
    let line = |line: &str| json!({ "type": "RichTextBlock", "inlines": [{ "type": "TextRun", "text": line }] });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.2",
                "body": text.lines().map(line).collect::<Vec<_>>(),
            },
        }],
    })
}
