//! A user's HTTP endpoint, on this machine.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
};

/// A received request.
pub struct Post {
    pub path: String,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl Post {
    /// Returns the next request on this connection.
    pub fn read(stream: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                Ok(0) | Err(_) => return None,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => lines.push(line.trim_end().to_owned()),
            }
        }
        let path = lines.remove(0).split(' ').nth(1).unwrap_or_default().to_owned();
        let mut post = Self { path, headers: lines, body: Vec::new() };
        let length = post.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        post.body.resize(length, 0);
        stream.read_exact(&mut post.body).ok()?;
        Some(post)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().filter_map(|line| line.split_once(": "));
        found.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// Starts an endpoint. Returns its URL and a channel with the requests that it received. For request number
/// n, counted from 0, `answer` returns the status line with any headers, and the body.
pub fn endpoint(answer: impl Fn(usize, &Post) -> (String, String) + Send + Sync + 'static) -> (String, Receiver<Post>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let (posts, posted) = channel();
    let answer = Arc::new(answer);
    let number = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), posts) = (stream, posts.clone()) else { return };
            let answer = answer.clone();
            let number = number.clone();
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while let Some(post) = Post::read(&mut stream) {
                    let (status, body) = answer(number.fetch_add(1, Ordering::SeqCst), &post);
                    let _ = posts.send(post);
                    let length = body.len();
                    let answered =
                        write!(stream.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                    answered.expect("it listens");
                }
            });
        }
    });
    (url, posted)
}
