//! Emulates the few AWS requests that the command sends, and stacks to send them about.

use std::{
    collections::BTreeMap,
    io::{BufReader, Write},
    net::TcpListener,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use webhook_serializer::protocol::entity::EntityKey;

use crate::{
    endpoint::Post,
    running::{LocalProcess, complained, folder, printed, serializer},
};

/// An answer's status and body.
pub type CannedAnswer = (u16, String);

/// The beginning of a service's refusal.
pub const DENIED: &str = "User: arn:aws:iam::123456789012:user/ann is not authorized to perform";

/// A service that answers each request by its action, target or path.
pub struct Aws {
    url: String,
    answers: Arc<Mutex<BTreeMap<String, Vec<CannedAnswer>>>>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Aws {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let aws = Self { url, answers: Arc::default(), asked: Arc::default() };
        let answers = aws.answers.clone();
        let asked = aws.asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), answers, asked) = (stream, answers.clone(), asked.clone()) else { return };
                std::thread::spawn(move || serve(BufReader::new(stream), &answers, &asked));
            }
        });
        aws
    }

    /// Returns the service's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers requests for `what` like this from now on.
    pub fn answer(&self, what: &str, status: u16, body: impl Into<String>) {
        self.answers.lock().unwrap().insert(what.to_owned(), vec![(status, body.into())]);
    }

    /// Answers requests for `what` with these answers in turn, and from then on with the last one.
    pub fn answer_in_turn(&self, what: &str, answers: &[(u16, String)]) {
        let answers = answers.to_vec();
        self.answers.lock().unwrap().insert(what.to_owned(), answers);
    }

    /// Refuses requests for `what` from now on.
    pub fn deny(&self, what: &str) {
        let said = format!(
            "<ErrorResponse><Error><Code>AccessDenied</Code><Message>{DENIED}: {what}</Message></Error></ErrorResponse>"
        );
        let json = format!(r#"{{"__type":"AccessDeniedException","message":"{DENIED}: {what}"}}"#);
        let is_json = what.contains('.') || what.starts_with('/');
        self.answer(what, 403, if is_json { json } else { said });
    }

    /// Returns the bodies of the requests for `what` so far.
    pub fn asked(&self, what: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(name, _)| name == what).map(|(_, body)| body.clone()).collect()
    }

    /// Answers with a stack `shop` that has these outputs and parameters.
    pub fn stack(&self, outputs: &[(&str, &str)], parameters: &[(&str, &str)]) {
        let list = |of: &str, pairs: &[(&str, &str)]| -> String {
            let one = |(key, value): &(&str, &str)| {
                let value = value.replace('&', "&amp;");
                format!("<member><{of}Key>{key}</{of}Key><{of}Value>{value}</{of}Value></member>")
            };
            pairs.iter().map(one).collect()
        };
        let body = format!(
            "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>shop</StackName>\
             <StackId>arn:aws:cloudformation:eu-central-1:123456789012:stack/shop/1</StackId>\
             <StackStatus>UPDATE_COMPLETE</StackStatus>\
             <DriftInformation><StackDriftStatus>NOT_CHECKED</StackDriftStatus></DriftInformation>\
             <Outputs>{}</Outputs><Parameters>{}</Parameters></member></Stacks></DescribeStacksResult>\
             </DescribeStacksResponse>",
            list("Output", outputs),
            list("Parameter", parameters)
        );
        self.answer("DescribeStacks", 200, body);
    }

    /// Runs a command in an account with these services. DynamoDB is at `dynamodb` instead.
    pub fn ran(&self, dynamodb: &str, command: &[&str]) -> Output {
        self.command(dynamodb, command).output().expect("it can be run")
    }

    /// Returns the command that [`ran`](Self::ran) runs.
    pub fn command(&self, dynamodb: &str, command: &[&str]) -> Command {
        let mut command = serializer(command);
        let set = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("AWS_"));
        for name in set {
            command.env_remove(name);
        }
        command.envs([("AWS_ENDPOINT_URL", self.url.as_str()), ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb)]);
        command.envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_CONFIG_FILE", "/dev/null")]);
        command
    }
}

fn serve(
    mut stream: BufReader<std::net::TcpStream>,
    answers: &Mutex<BTreeMap<String, Vec<CannedAnswer>>>,
    asked: &Mutex<Vec<(String, String)>>,
) {
    while let Some(post) = Post::read(&mut stream) {
        let signed = post.header("authorization").is_some_and(|signed| signed.starts_with("AWS4-HMAC-SHA256 "));
        assert!(signed, "{:?}", post.headers);
        let body = String::from_utf8_lossy(&post.body).into_owned();
        let action = body.split('&').find_map(|field| field.strip_prefix("Action=")).map(str::to_owned);
        let target = post.header("x-amz-target").map(str::to_owned);
        let what = target.or(action).unwrap_or_else(|| post.path.clone());
        asked.lock().unwrap().push((what.clone(), body));
        let (status, answer) = match answers.lock().unwrap().get_mut(&what) {
            Some(queued) if queued.len() > 1 => queued.remove(0),
            Some(queued) => queued[0].clone(),
            None => (400, format!(r#"{{"__type":"UnknownOperationException","message":"{what} is not known here"}}"#)),
        };
        let head = format!("HTTP/1.1 {status} .\r\ncontent-length: {}\r\n\r\n", answer.len());
        if stream.get_mut().write_all((head + &answer).as_bytes()).is_err() {
            return;
        }
    }
}

/// A local run, and an AWS stack `shop` whose outputs name its tables.
pub struct StackWithLocal {
    pub local: LocalProcess,
    pub aws: Aws,
    pub dynamodb: String,
    line: String,
    _folder: tempfile::TempDir,
}

impl StackWithLocal {
    pub fn start() -> Self {
        let folder = folder();
        let environment = folder.path().join("environment");
        let local = LocalProcess::start(&["--env-file", environment.to_str().expect("a path in UTF-8")]);
        // The run is not complete when it says that it serves. It is once it answers a command.
        assert!(local.ran(&["status"]).status.success());
        let aws = Aws::start();
        let mut stack = String::new();
        let text = std::fs::read_to_string(&environment).expect("it is written");
        let named = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.expect(name).to_owned()
        };
        for name in ["ENTITIES_TABLE", "INBOX_TABLE", "QUEUE_URL", "RETENTION_DAYS"] {
            stack += &format!(" {name}={}", named(name));
        }
        let line = format!("export AWS_REGION=eu-central-1{stack} SOURCES=/shop WEBHOOK_URL=https://x/webhooks/");
        let dynamodb = named("AWS_ENDPOINT_URL_DYNAMODB");
        let stack = Self { local, aws, dynamodb, line, _folder: folder };
        stack.deployed(&[]);
        stack
    }

    /// From now on, the stack also has these parameters.
    pub fn deployed(&self, with: &[(&str, &str)]) {
        self.deployed_with_outputs(&[], with);
    }

    /// Deploys the stack with further outputs, and with these parameters.
    pub fn deployed_with_outputs(&self, further: &[(&str, &str)], with: &[(&str, &str)]) {
        let outputs = [
            ("CommandLine", self.line.as_str()),
            ("WorkerFunction", "shop-Worker-1"),
            ("SchedulerFunction", "shop-Scheduler-1"),
            ("DeadLetterQueueUrl", "https://sqs.eu-central-1.amazonaws.com/123456789012/shop-dead"),
            // The observability stack gets the same answer; `Topic` belongs to it.
            ("Topic", "arn:aws:sns:eu-central-1:123456789012:alarms"),
        ];
        let parameters =
            [("WorkerConcurrency", "50"), ("IngestConcurrency", "0"), ("WorkerTimeout", "60"), ("Sources", "/shop")];
        self.aws.stack(&[&outputs, further].concat(), &[&parameters, with].concat());
    }

    /// Runs a command with the option that names the stack.
    pub fn ran(&self, command: &[&str]) -> Output {
        let stack = ["--stack", "shop", "--region", "eu-central-1"];
        self.aws.ran(&self.dynamodb, &[command, &stack].concat())
    }
}

/// Promise: `--stack` finds tables, queue and sources by a stack's outputs, or says why not.
#[test]
fn stack_outputs_locate_tables_queue_and_sources() {
    let mut stack = StackWithLocal::start();
    stack.local.apply_sample();
    let inspected = stack.ran(&["show", "shopify/order/450789469"]);
    assert!(printed(&inspected).contains("All deliveries are settled."), "{inspected:?}");
    let asked = stack.aws.asked("DescribeStacks");
    let orders = stack.ran(&["list"]);
    assert!(printed(&orders).contains("shopify/order/450789469  idle"), "{orders:?}");
    assert!(
        complained(&orders).contains("reading the tables cost about ") && complained(&orders).contains(" read units"),
        "{orders:?}"
    );
    assert_eq!(asked, ["Action=DescribeStacks&Version=2010-05-15&StackName=shop"]);
    // The line for the next command names the stack too.
    let nothing = stack.ran(&["show", "shopify/order/0"]);
    let next = "`serializer lease list --stack shop --region eu-central-1 --all --raw`";
    assert!(printed(&nothing).contains(next), "{nothing:?}");
    let document = r#"{"Parameter":{"Name":"/shop","Type":"SecureString","Version":3,"Value":"[sources.mine]\nprovider='stripe'\nsecrets=['whsec_s']\nhandler='log'"}}"#;
    stack.aws.answer("AmazonSSM.GetParameter", 200, document);
    let listed = stack.ran(&["source", "list"]);
    assert!(printed(&listed).contains("mine"), "{listed:?}");
}

/// The command's wake-ups carry the group of the account if those of the stack's functions do.
#[test]
fn wake_ups_have_a_group_if_the_stack_has_a_fair_queue() {
    let stack = StackWithLocal::start();
    let order = "shopify/acme.example/order/1";
    stack.aws.answer("AmazonSQS.SendMessage", 200, "{}");
    let sent = |fair: &str| {
        let line = format!("{} FAIR_QUEUE={fair}", stack.line);
        stack.deployed_with_outputs(&[("CommandLine", &line)], &[]);
        for command in ["hold", "resume"] {
            let done = stack.ran(&[command, order, "--why", "a test"]);
            assert!(done.status.success(), "{done:?}");
        }
        let sent = stack.aws.asked("AmazonSQS.SendMessage");
        serde_json::from_str::<serde_json::Value>(sent.last().expect("a wake-up")).expect("JSON")
    };
    assert_eq!(sent("false").get("MessageGroupId"), None);
    let account = EntityKey::parse(order).expect("a key").account_hash();
    assert_eq!(sent("true")["MessageGroupId"], account);
    stack.deployed_with_outputs(&[("CommandLine", &format!("{} FAIR_QUEUE=yes", stack.line))], &[]);
    let refused = complained(&stack.ran(&["hold", order, "--why", "a test"]));
    assert!(refused.contains("FAIR_QUEUE: \"yes\" is neither true nor false"), "{refused}");
}

#[test]
fn error_says_why_stack_is_unusable() {
    let aws = Aws::start();
    let said = || {
        let refused = aws.ran("http://127.0.0.1:1", &["status", "--stack", "shop", "--region", "eu-central-1"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        complained(&refused)
    };
    let missing = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>\
                   <Message>Stack with id shop does not exist</Message></Error></ErrorResponse>";
    aws.answer("DescribeStacks", 400, missing);
    let none = said();
    assert!(none.contains("there is no stack `shop` in eu-central-1 in the account"), "{none}");
    aws.stack(&[("Url", "https://x")], &[]);
    let foreign = said();
    assert!(foreign.contains("the stack `shop` (UPDATE_COMPLETE) has no output CommandLine"), "{foreign}");
    aws.stack(&[("CommandLine", "export ENTITIES_TABLE=e RETENTION_DAYS=30")], &[]);
    let part = said();
    assert!(part.contains("the stack `shop` gives no value for INBOX_TABLE"), "{part}");
    aws.deny("DescribeStacks");
    let denied = said();
    assert!(
        denied.contains("your credentials need the permission cloudformation:DescribeStacks")
            && denied.contains("user/ann"),
        "{denied}"
    );
    assert!(denied.contains("the permissions that docs/deploying.md lists"), "{denied}");
    aws.answer("DescribeStacks", 503, "");
    assert!(said().contains("cloudformation answers 503"));
    assert_eq!(aws.asked("DescribeStacks").len(), 4 + 3, "what is not well is asked again, twice");
    let nobody = serializer(&["status", "--stack", "shop"])
        .envs([
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_REGION", "eu-central-1"),
        ])
        .output()
        .expect("it can be run");
    assert!(complained(&nobody).contains("http://127.0.0.1:1 cannot be reached"), "{nobody:?}");
}
