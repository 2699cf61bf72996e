//! A real browser, driven by the WebDriver protocol: Debian's `chromium` and `chromium-driver`. Its methods
//! panic if the browser fails or does not answer.

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

/// The key under which the protocol returns an element's id.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The longest wait for a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys without a character, as the protocol encodes them.
pub mod key {
    /// Activates the focused element.
    pub const ENTER: &str = "\u{e007}";
    /// Moves the focus.
    pub const TAB: &str = "\u{e004}";
    /// Closes a dialog.
    pub const ESCAPE: &str = "\u{e00c}";
}

/// A browser with one page; ends when dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    sender: Sender,
    session: String,
    _files: TempDir,
}

/// The time between two polls of a page.
const FRAME: Duration = Duration::from_millis(16);

/// The largest number of starts of a driver. Drivers that start at the same time may choose the same port;
/// one of them then ends, and is started again.
const ATTEMPTS: u32 = 5;

/// Starts a driver. Returns it and its port; `None` if no driver is installed.
fn driver(temporary: &Path) -> Option<(Child, u16)> {
    for _ in 0..ATTEMPTS {
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
    panic!("chromedriver ended before it printed its port, {ATTEMPTS} times")
}

impl Browser {
    /// Starts a browser; `None` if no browser is installed.
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
            // Requests to other hosts fail and appear in the browser's log.
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

    /// Sends a command of the protocol.
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

    pub async fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url })).await.expect("it loads");
        // The browser drops input until it has painted the page.
        self.until("performance.getEntriesByType('paint').length > 0").await;
    }

    /// Returns the page's URL.
    pub async fn address(&self) -> String {
        self.ask("GET", "/url", &json!({})).await.expect("an address").as_str().unwrap_or_default().to_owned()
    }

    /// Returns the value of a JavaScript expression.
    pub async fn run(&self, script: &str) -> Value {
        let script = format!("return {script};");
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] })).await.expect("it runs")
    }

    /// Waits until a JavaScript expression is neither null nor false, and returns its value. The method
    /// polls, because a script that waits inside the page would be lost if the page changed.
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

    /// Waits for a text in the page.
    pub async fn until_text(&self, text: &str) {
        self.until(&format!("document.body?.innerText.includes({})", json!(text))).await;
    }

    /// Reloads the page until it contains a text.
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

    /// Clicks the first element that matches a selector, once there is one.
    pub async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.ask("POST", &format!("/element/{element}/click"), &json!({})).await.expect("it can be clicked on");
    }

    /// Types a text into the first element that matches a selector.
    pub async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        let typed = self.ask("POST", &format!("/element/{element}/value"), &json!({ "text": text })).await;
        typed.expect("it takes text");
    }

    /// Presses keys, one after the other.
    pub async fn press(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() })))
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] });
        self.ask("POST", "/actions", &actions).await.expect("keys are pressed");
    }

    /// Sends a command of the Chrome DevTools Protocol.
    pub async fn emulate(&self, command: &str, parameters: Value) {
        let asked = json!({ "cmd": command, "params": parameters });
        self.ask("POST", "/goog/cdp/execute", &asked).await.expect("it is emulated");
    }

    /// Makes pages see that the user prefers the colour scheme `dark` or `light`.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.emulate("Emulation.setEmulatedMedia", features).await;
    }

    /// Emulates a screen of this size.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.emulate("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Returns a screenshot, as PNG.
    pub async fn picture(&self) -> Vec<u8> {
        let taken = self.ask("GET", "/screenshot", &json!({})).await.expect("a picture");
        STANDARD.decode(taken.as_str().unwrap_or_default()).expect("base64")
    }

    /// Returns the browser's log since the last call.
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
        let session = &self.session;
        let port = self.port;
        write!(driver, "DELETE /session/{session} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
        // Waits until the browser has ended: the driver answers then.
        driver.read(&mut [0; 512]).map(drop)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A browser would outlive its driver. Ending the session ends the browser.
        let _ = self.end_session();
        let _ = Command::new("kill").args(["-TERM", &self.driver.id().to_string()]).status();
        let _ = self.driver.wait();
    }
}
