//! A real browser, driven over the W3C's WebDriver protocol: Debian's `chromium`
//! and `chromium-driver`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use serializer::local::sender::Sender;
use tempfile::TempDir;
use webhook_serializer::time::Env;

/// The key that an element's id stands under, as the protocol has it.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How long a page is waited for before a test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys that are no letters.
pub mod key {
    /// Opens what has the focus.
    pub const ENTER: &str = "\u{e007}";
    /// The next thing that takes the focus.
    pub const TAB: &str = "\u{e004}";
    /// Leaves a field or a dialog.
    pub const ESCAPE: &str = "\u{e00c}";
}

/// A browser with one page. It ends when this is dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    sender: Sender,
    session: String,
    /// What it leaves behind when it ends, which goes with it.
    _files: TempDir,
}

/// Between two looks at a page.
const FRAME: Duration = Duration::from_millis(16);

/// Several that start at once may choose the same port: then one of them ends.
const TRIES: u32 = 5;

/// A driver, and its port; `None`: none is installed here. Its browser keeps files in `temporary`.
fn driver(temporary: &Path) -> Option<(Child, u16)> {
    for _ in 0..TRIES {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").env("TMPDIR", temporary).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().ok()?;
        let lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let port = line.split("started successfully on port ").nth(1)?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        if let Some(port) = port {
            return Some((driver, port));
        }
        let _ = driver.wait();
    }
    panic!("a driver is installed, and ends before it says its port, {TRIES} times")
}

impl Browser {
    /// Starts one; `None`: none is installed here.
    ///
    /// # Panics
    ///
    /// One is installed and does not start.
    pub async fn start() -> Option<Self> {
        let files = TempDir::new().expect("a folder");
        let (driver, port) = driver(files.path())?;
        let sender = Sender::new(format!("http://127.0.0.1:{port}"));
        let mut browser = Self { driver, port, sender, session: String::new(), _files: files };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--window-size=1440,900",
            // Whatever a page would ask for elsewhere fails, and is in the browser's log.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": PATIENCE.as_millis() as u64, "pageLoad": PATIENCE.as_millis() as u64 },
        } } });
        let made = browser.ask("POST", "", &wanted).await.expect("a session begins");
        browser.session = made["sessionId"].as_str().expect("it has an id").to_owned();
        Some(browser)
    }

    /// A command of the protocol; `Err`: what went wrong, in its words.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let session = if self.session.is_empty() { String::new() } else { format!("/{}", self.session) };
        let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let answer = self.sender.request(method, &format!("/session{session}{path}"), &headers, body).await;
        let answer = answer.expect("the driver answers");
        let said: Value = serde_json::from_str(&answer.body).expect("JSON");
        match answer.status {
            200 => Ok(said["value"].clone()),
            _ => Err(format!("{path}: {} {}", said["value"]["error"], said["value"]["message"])),
        }
    }

    /// Opens an address.
    ///
    /// # Panics
    ///
    /// It does not load.
    pub async fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url })).await.expect("it loads");
        // Before it has painted a page, the browser drops what is typed.
        self.until("performance.getEntriesByType('paint').length > 0").await;
    }

    /// The address of the page.
    ///
    /// # Panics
    ///
    /// The browser does not answer.
    pub async fn address(&self) -> String {
        self.ask("GET", "/url", &json!({})).await.expect("an address").as_str().unwrap_or_default().to_owned()
    }

    /// What a script in the page returns.
    ///
    /// # Panics
    ///
    /// It fails.
    pub async fn run(&self, script: &str) -> Value {
        let script = format!("return {script};");
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] })).await.expect("it runs")
    }

    /// What a script in the page returns, once that is something: asked again and
    /// again, of whatever page is shown by then. A script that waits in the page
    /// itself would be lost with it.
    ///
    /// # Panics
    ///
    /// It is nothing within a minute.
    pub async fn until(&self, script: &str) -> Value {
        let look = format!("try {{ return {script}; }} catch {{ return null; }}");
        let waited = async {
            loop {
                match self.ask("POST", "/execute/sync", &json!({ "script": look, "args": [] })).await {
                    Ok(Value::Null | Value::Bool(false)) | Err(_) => Env::system().sleep(FRAME).await,
                    Ok(found) => return found,
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, waited).await;
        found.unwrap_or_else(|_| panic!("{script} did not come true within a minute"))
    }

    /// Waits for a text somewhere in the page.
    ///
    /// # Panics
    ///
    /// It does not come within a minute.
    pub async fn until_text(&self, text: &str) {
        self.until(&format!("document.body?.innerText.includes({})", json!(text))).await;
    }

    /// Loads the page anew until a text is somewhere in it.
    ///
    /// # Panics
    ///
    /// It does not come within a minute.
    pub async fn until_reloaded(&self, text: &str) {
        let shown = format!("document.body?.innerText.includes({})", json!(text));
        let waited = async {
            while self.run(&shown).await != json!(true) {
                self.ask("POST", "/refresh", &json!({})).await.expect("it loads");
            }
        };
        tokio::time::timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("{text} did not come within a minute"));
    }

    async fn element(&self, selector: &str) -> String {
        self.until(&format!("document.querySelector({}) !== null", json!(selector))).await;
        let found = self.ask("POST", "/element", &json!({ "using": "css selector", "value": selector })).await;
        found.expect("an element")[ELEMENT].as_str().expect("its id").to_owned()
    }

    /// Clicks on the first element that a selector names, once it is there.
    ///
    /// # Panics
    ///
    /// It cannot be clicked on.
    pub async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.ask("POST", &format!("/element/{element}/click"), &json!({})).await.expect("it can be clicked on");
    }

    /// Types into it.
    ///
    /// # Panics
    ///
    /// It takes no text.
    pub async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        let typed = self.ask("POST", &format!("/element/{element}/value"), &json!({ "text": text })).await;
        typed.expect("it takes text");
    }

    /// Presses keys, one after the other, wherever the focus is.
    ///
    /// # Panics
    ///
    /// The browser does not answer.
    pub async fn press(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() })))
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] });
        self.ask("POST", "/actions", &actions).await.expect("keys are pressed");
    }

    /// What a device or a person's preference makes of the page.
    ///
    /// # Panics
    ///
    /// The browser does not answer.
    pub async fn emulate(&self, command: &str, parameters: Value) {
        let asked = json!({ "cmd": command, "params": parameters });
        self.ask("POST", "/goog/cdp/execute", &asked).await.expect("it is emulated");
    }

    /// As on a system that is dark, or light.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.emulate("Emulation.setEmulatedMedia", features).await;
    }

    /// As on a screen of this size.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.emulate("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// What is seen, as a PNG.
    ///
    /// # Panics
    ///
    /// The browser does not answer.
    pub async fn picture(&self) -> Vec<u8> {
        let taken = self.ask("GET", "/screenshot", &json!({})).await.expect("a picture");
        STANDARD.decode(taken.as_str().unwrap_or_default()).expect("base64")
    }

    /// What the browser complained of since it was asked last.
    ///
    /// # Panics
    ///
    /// The browser does not answer.
    pub async fn complaints(&self) -> Vec<String> {
        let said = self.ask("POST", "/se/log", &json!({ "type": "browser" })).await.expect("a log");
        let entries = said.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Browser {
    fn end_session(&self) -> std::io::Result<()> {
        let mut driver = TcpStream::connect(("127.0.0.1", self.port))?;
        driver.set_read_timeout(Some(PATIENCE))?;
        let (session, port) = (&self.session, self.port);
        write!(driver, "DELETE /session/{session} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
        // It answers once the browser has ended, and keeps the connection.
        driver.read(&mut [0; 512]).map(drop)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session; it would outlive its driver.
        let _ = self.end_session();
        let _ = Command::new("kill").args(["-TERM", &self.driver.id().to_string()]).status();
        let _ = self.driver.wait();
    }
}
