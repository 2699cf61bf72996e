//! The items of a bill, and their sum.

use std::collections::BTreeMap;

use super::{
    MEMORY_GB,
    price::{self, free},
};
use crate::sheet::{Sheet, SheetCell};

#[derive(Debug, Clone)]
pub(super) struct BillItem {
    pub(super) name: &'static str,
    pub(super) count: f64,
    pub(super) unit: &'static str,
    pub(super) dollars: f64,
    /// The part of `dollars` that the free tier covers.
    pub(super) free: f64,
    /// True if the item is for logs, metrics or alarms. Every design needs some of these.
    pub(super) is_observation: bool,
}

impl BillItem {
    pub(super) fn new(name: &'static str, count: f64, unit: &'static str, price: f64) -> Self {
        Self { name, count, unit, dollars: count * price, free: 0.0, is_observation: false }
    }

    pub(super) fn observation(name: &'static str, count: f64, unit: &'static str, price: f64) -> Self {
        Self { is_observation: true, ..Self::new(name, count, unit, price) }
    }
}

pub(super) fn function(name: &'static str, invocations: f64, ms_each: f64) -> [BillItem; 2] {
    let seconds = invocations * ms_each / 1000.0 * MEMORY_GB;
    [
        BillItem::new(name, invocations, "invocations", price::INVOCATION),
        BillItem::new("  its time", seconds, "GB-s", price::GB_SECOND),
    ]
}

#[derive(Debug, Clone)]
pub(super) struct Bill {
    pub(super) design: &'static str,
    pub(super) items: Vec<BillItem>,
}

impl Bill {
    pub(super) fn new(design: &'static str, mut items: Vec<BillItem>) -> Self {
        let mut used: BTreeMap<&str, f64> = BTreeMap::new();
        for item in items.iter_mut().filter(|item| item.count > 0.0) {
            let used = used.entry(item.unit).or_default();
            let taken = (free(item.unit) - *used).clamp(0.0, item.count);
            *used += taken;
            item.free = item.dollars * taken / item.count;
        }
        Self { design, items }
    }

    pub(super) fn dollars(&self) -> f64 {
        self.items.iter().map(|item| item.dollars).sum()
    }

    pub(super) fn free(&self) -> f64 {
        self.items.iter().map(|item| item.free).sum()
    }

    pub(super) fn observation(&self) -> f64 {
        self.items.iter().filter(|item| item.is_observation).map(|item| item.dollars).sum()
    }

    /// Returns the part of the bill that can be compared between designs.
    pub(super) fn without_observation(&self) -> f64 {
        self.dollars() - self.observation()
    }

    pub(super) fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(&[
            ("item", "a month"),
            ("count", ">count"),
            ("unit", ""),
            ("dollars", ">dollars"),
            ("free", ">free"),
        ]);
        for item in &self.items {
            let free = if item.free > 0.0 { dollars(item.free) } else { String::new() };
            sheet.row([
                SheetCell::text(item.name),
                SheetCell::number(item.count, count(item.count)),
                SheetCell::text(item.unit),
                SheetCell::number(item.dollars, dollars(item.dollars)),
                SheetCell::number(item.free, free),
            ]);
        }
        let none = || SheetCell::none("");
        let number = |amount: f64| SheetCell::number(amount, dollars(amount));
        sheet.row([SheetCell::text("in all"), none(), none(), number(self.dollars()), number(self.free())]);
        sheet
    }

    pub(super) fn dollars_for(&self, name: &str) -> f64 {
        self.items.iter().filter(|item| item.name == name).map(|item| item.dollars).sum()
    }
}

pub(super) fn dollars(amount: f64) -> String {
    // Sums of fractions leave a remainder, which would print as -0.00.
    format!("{:.2}", if amount.abs() < 0.005 { 0.0 } else { amount })
}

fn count(count: f64) -> String {
    match count {
        ..1000.0 => format!("{count:.1}"),
        ..1e6 => format!("{:.1} k", count / 1e3),
        _ => format!("{:.1} M", count / 1e6),
    }
}
