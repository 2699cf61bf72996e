//! The functions that the WebAssembly module exports. The module imports nothing.
//!
//! A text passes through a buffer of the module: the host asks [`input`] for room, writes the text there, and calls
//! [`client`], [`start`] or [`step`]. These return the address of the answer, whose length is [`answer_length`].

#![expect(unsafe_code, reason = "an exported function has an unsafe attribute")]

use std::cell::RefCell;

use serde_json::json;

use crate::session::{Client, Session};

#[derive(Default)]
struct Module {
    input: Vec<u8>,
    answer: String,
    clients: Vec<Client>,
    sessions: Vec<Option<Session>>,
}

thread_local! {
    static MODULE: RefCell<Module> = RefCell::default();
}

impl Module {
    fn text(&mut self) -> Result<String, String> {
        String::from_utf8(std::mem::take(&mut self.input)).map_err(|_| "the input is not UTF-8".into())
    }

    fn answer(&mut self, answer: Result<String, String>) -> *const u8 {
        self.answer = answer.unwrap_or_else(|reason| json!({ "invalid": reason }).to_string());
        self.answer.as_ptr()
    }

    fn started(&mut self, client: usize) -> Result<String, String> {
        let text = self.text()?;
        let client = self.clients.get(client).ok_or("no such client")?;
        let session = Session::new(client, &text)?;
        let free = self.sessions.iter().position(Option::is_none).unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() - 1
        });
        self.sessions[free] = Some(session);
        Ok(free.to_string())
    }

    fn stepped(&mut self, session: usize) -> Result<String, String> {
        let text = self.text()?;
        let session = self.sessions.get_mut(session).and_then(Option::as_mut).ok_or("no such session")?;
        session.step(&text)
    }
}

/// Returns the address of room for an input of `length` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    MODULE.with_borrow_mut(|module| {
        module.input = vec![0; length];
        module.input.as_mut_ptr()
    })
}

/// Returns the length of the last answer, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn answer_length() -> usize {
    MODULE.with_borrow(|module| module.answer.len())
}

/// Creates a client. The answer is its number.
#[unsafe(no_mangle)]
pub extern "C" fn client() -> *const u8 {
    MODULE.with_borrow_mut(|module| {
        let created = module.text().and_then(|text| Client::new(&text)).map(|client| {
            module.clients.push(client);
            (module.clients.len() - 1).to_string()
        });
        module.answer(created)
    })
}

/// Starts a session of a client. The answer is the session's number.
#[unsafe(no_mangle)]
pub extern "C" fn start(client: usize) -> *const u8 {
    MODULE.with_borrow_mut(|module| {
        let started = module.started(client);
        module.answer(started)
    })
}

/// Continues a session. The answer is what the host must do next.
#[unsafe(no_mangle)]
pub extern "C" fn step(session: usize) -> *const u8 {
    MODULE.with_borrow_mut(|module| {
        let stepped = module.stepped(session);
        module.answer(stepped)
    })
}

/// Drops a session.
#[unsafe(no_mangle)]
pub extern "C" fn end(session: usize) {
    MODULE.with_borrow_mut(|module| {
        if let Some(session) = module.sessions.get_mut(session) {
            *session = None;
        }
    });
}
