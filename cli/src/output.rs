//! Output for people: tables, durations, command lines, colours, and writers to standard output and error.

use std::{
    borrow::Cow,
    fmt::Write,
    io::{self, IsTerminal},
    sync::LazyLock,
    time::Duration,
};

use console::{Alignment, AnsiCodeIterator, Style, measure_text_width, pad_str};
use webhook_serializer::protocol::attempt::RetryPolicy;
pub use webhook_serializer::protocol::format::{quoted, visible};

/// The URL of a `serializer local` that was started without `--port`.
pub const LOCAL: &str = "http://127.0.0.1:9000";

/// Names the `serializer local` of commands that name no deployment.
pub const LOCAL_VARIABLE: &str = "SERIALIZER_LOCAL";

/// Prints a line, formatted as by `println!`. If the reader of a pipe, such as `head`, is gone, the process ends
/// quietly.
#[macro_export]
macro_rules! say {
    () => { $crate::output::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a text to standard output, escaped by [`visible`].
///
/// If the reader of a pipe is gone, the process ends quietly. On any other error, such as a full disk, the process ends
/// with code 1.
pub fn print(text: impl std::fmt::Display) {
    write(escaped(&text.to_string()).as_bytes());
}

/// Prints bytes to standard output. A file or a pipe gets the bytes unchanged. A terminal gets the bytes as text,
/// escaped by [`visible`].
pub fn print_raw(bytes: &[u8]) {
    match io::stdout().is_terminal() {
        true => write(visible(&String::from_utf8_lossy(bytes)).as_bytes()),
        false => write(bytes),
    }
}

/// Writes all bytes in one call, so that threads do not mix their lines.
fn write(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    match io::Write::write_all(&mut output, bytes).and_then(|()| io::Write::flush(&mut output)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            complain(format_args!("error: standard output cannot be written to: {error}"));
            std::process::exit(1)
        }
    }
}

pub fn complain(line: impl std::fmt::Display) {
    let _ = io::Write::write_all(&mut io::stderr(), escaped(&format!("{line}\n")).as_bytes());
}

#[derive(Debug, Clone, Copy)]
pub struct Complaints;

impl io::Write for Complaints {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(escaped(&String::from_utf8_lossy(bytes)).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes `text` by [`visible`], but keeps ANSI colour codes, because this command adds colours to its output.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return visible(text);
    }
    let is_colour = |code: &str| {
        let numbers = code.strip_prefix("\u{1b}[").and_then(|rest| rest.strip_suffix('m'));
        numbers.is_some_and(|numbers| numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
    };
    let shown = |(part, is_code)| if is_code && is_colour(part) { part.into() } else { visible(part) };
    AnsiCodeIterator::new(text).map(shown).collect::<String>().into()
}

pub fn one_line(text: &str) -> String {
    visible(&text.replace(['\n', '\r', '\t'], " ")).into_owned()
}

#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Alignment)>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    /// Creates a table with these columns. A column whose name starts with `>` is aligned to the right.
    pub fn new(columns: &[&str]) -> Self {
        let column = |name: &&str| match name.strip_prefix('>') {
            Some(name) => (name.to_owned(), Alignment::Right),
            None => ((*name).to_owned(), Alignment::Left),
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| (one_line(&cell), Style::new())).collect());
    }

    /// Sets the style of a cell of the newest row. Like all styles, it shows only where colours are enabled.
    pub fn style(&mut self, column: usize, style: Style) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.get_mut(column)) {
            cell.1 = style;
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cell =
            |row: &[(String, Style)], column: usize| row.get(column).map_or(0, |(cell, _)| measure_text_width(cell));
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let widest = self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
                widest.max(measure_text_width(&self.columns[column].0))
            })
            .collect();
        let mut line = |cells: &[(String, Style)]| {
            let mut text = String::new();
            for (((cell, style), width), (_, alignment)) in cells.iter().zip(&widths).zip(&self.columns) {
                let cell = style.apply_to(cell).to_string();
                let _ = write!(text, "{}  ", pad_str(&cell, *width, *alignment, None));
            }
            writeln!(f, "{}", text.trim_end())
        };
        let heading: Vec<_> = self.columns.iter().map(|(name, _)| (name.clone(), Style::new().dim())).collect();
        line(&heading)?;
        self.rows.iter().try_for_each(|row| line(row))
    }
}

pub fn command_line(command: &str, option: &str, arguments: &[&str]) -> String {
    let arguments: String = arguments.iter().map(|argument| format!(" {}", quoted(argument))).collect();
    format!("{} {command}{option}{arguments}", this_command())
}

/// Returns the option that names this `serializer local`, with a space in front. The text is empty if
/// [`LOCAL_VARIABLE`] names it.
pub fn local_option(url: &str) -> String {
    match url {
        url if local_of_environment() == Some(url) => String::new(),
        LOCAL => " --local".to_owned(),
        url => format!(" --local={url}"),
    }
}

/// Returns the URL in [`LOCAL_VARIABLE`], or `None` if the variable is unset or empty.
pub fn local_of_environment() -> Option<&'static str> {
    static URL: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var(LOCAL_VARIABLE).ok().filter(|url| !url.is_empty()));
    URL.as_deref().map(|url| url.trim_end_matches('/'))
}

/// Returns the URL of the `serializer local` that commands use if no option names another.
pub fn local_address() -> &'static str {
    local_of_environment().unwrap_or(LOCAL)
}

/// Returns what a user types to call this program.
///
/// Packages that are not on the PATH say it in the variable `SERIALIZER_COMMAND`. A program that was called as
/// `./serializer` is not on the PATH either, so the name keeps the `./`.
pub fn this_command() -> String {
    let named = std::env::var("SERIALIZER_COMMAND").ok().filter(|command| !command.is_empty());
    named.unwrap_or_else(|| called(std::env::args_os().next().and_then(|first| first.into_string().ok())))
}

fn called(first: Option<String>) -> String {
    first.filter(|first| first.starts_with("./")).map_or("serializer".to_owned(), |first| quoted(&first))
}

pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        ..1.0 => format!("{} ms", duration.as_millis()),
        ..60.0 => format!("{seconds:.1} s"),
        ..3600.0 => format!("{:.0} min", seconds / 60.0),
        ..86_400.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

pub fn limits(retry: &RetryPolicy) -> String {
    let attempts = retry.attempts.map(|attempts| format!("{attempts} attempts"));
    let failed = (retry.failed_for != Duration::MAX).then(|| format!("{} of failures", duration(retry.failed_for)));
    let unanswered = duration(retry.unanswered_for);
    let unavailable = duration(retry.unavailable_for);
    let others = [format!("{unanswered} unanswered"), format!("{unavailable} unavailable")];
    attempts.into_iter().chain(failed).chain(others).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_fit_the_widest_cell() {
        let mut table = Table::new(&["name", ">n"]);
        table.row(["a".into(), "100".into()]);
        table.row(["longer".into(), "7".into()]);
        assert_eq!(console::strip_ansi_codes(&table.to_string()), "name      n\na       100\nlonger    7\n");
    }

    #[test]
    fn styled_cells_keep_the_columns_aligned() {
        let table = |styles: [Style; 2]| {
            let mut table = Table::new(&["state", ">n", "last"]);
            table.row(["idle".into(), "100".into(), "yes".into()]);
            table.row(["\u{1b}[31mred".into(), "7".into(), "no".into()]);
            styles.into_iter().enumerate().for_each(|(column, style)| table.style(column, style));
            table.to_string()
        };
        let plain = table([Style::new(), Style::new()]);
        let styled = table([Style::new().red().force_styling(true), Style::new().dim().force_styling(true)]);
        assert!(
            styled.contains("\u{1b}[31m\\u001b[31mred\u{1b}[0m  ") && styled.contains("  \u{1b}[2m7\u{1b}[0m  no\n")
        );
        assert_eq!(console::strip_ansi_codes(&styled), console::strip_ansi_codes(&plain));
    }

    #[test]
    fn control_characters_except_colours_are_escaped() {
        assert_eq!(escaped("\u{1b}[1;31mred\u{1b}[0m\u{1b}[2J\u{202e}"), "\u{1b}[1;31mred\u{1b}[0m\\u001b[2J\\u202e");
        assert_eq!(one_line("\u{1b}[31mred\n\u{9b}"), "\\u001b[31mred \\u009b");
    }

    #[test]
    fn durations_are_printed_in_short_form() {
        let shown: Vec<String> = [20, 3400, 300_000, 7_200_000].map(|ms| duration(Duration::from_millis(ms))).into();
        assert_eq!(shown, ["20 ms", "3.4 s", "5 min", "2 h"]);
    }

    #[test]
    fn printed_command_omits_default_local_url() {
        let line = |url| command_line("show", &local_option(url), &["a/b c"]);
        assert_eq!(line("http://127.0.0.1:9000"), "serializer show --local 'a/b c'");
        assert_eq!(line("http://127.0.0.1:9001"), "serializer show --local=http://127.0.0.1:9001 'a/b c'");
    }

    #[test]
    fn printed_command_keeps_leading_dot_slash() {
        let called = |first: &str| super::called(Some(first.into()));
        assert_eq!(called("./serializer"), "./serializer");
        for by_name in ["serializer", "target/debug/serializer", "/home/you/target/debug/serializer"] {
            assert_eq!(called(by_name), "serializer");
        }
        assert_eq!(super::called(None), "serializer");
    }
}
