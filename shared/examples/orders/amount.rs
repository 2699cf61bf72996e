//! Money, exact: whole numbers of a currency's smallest written unit, never a
//! float.
//!
//! An amount keeps the decimals it was written with (`48.20` stays `48.20`);
//! two amounts compare by value. Its size is bounded where it is parsed, so
//! that no sum of the amounts that one row can hold overflows.

use std::{cmp::Ordering, collections::BTreeMap, fmt, ops};

/// An exact decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Amount {
    /// How many of the last decimal there are: 4820 of `48.20`.
    units: i128,
    /// How many decimals: 2 of `48.20`.
    decimals: u8,
}

impl Amount {
    /// The most digits in front of the point.
    pub const MAX_WHOLE_DIGITS: usize = 15;
    /// The most digits behind the point.
    pub const MAX_DECIMALS: usize = 8;
    /// Of a sum: no body holds 10^9 amounts, and this many digits
    /// with the decimals are far from filling 128 bits.
    const MAX_WHOLE_DIGITS_OF_SUM: usize = Self::MAX_WHOLE_DIGITS + 9;

    /// The amount that `text` writes: digits, at most one point between them,
    /// perhaps a minus in front. `None` for anything else, exponents among it,
    /// and for more digits than [`Amount::MAX_WHOLE_DIGITS`] and
    /// [`Amount::MAX_DECIMALS`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_within(text, Self::MAX_WHOLE_DIGITS)
    }

    /// What `Display` shows, read back; also of a sum.
    pub(super) fn from_stored(text: &str) -> Option<Self> {
        Self::parse_within(text, Self::MAX_WHOLE_DIGITS_OF_SUM)
    }

    fn parse_within(text: &str, max_whole_digits: usize) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let pointed = digits.len() > whole.len();
        let all_digits = whole.bytes().chain(decimals.bytes()).all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || (pointed && decimals.is_empty()) || !all_digits {
            return None;
        }
        if whole.len() > max_whole_digits || decimals.len() > Self::MAX_DECIMALS {
            return None;
        }
        let units: i128 = format!("{whole}{decimals}").parse().ok()?;
        let units = if text.starts_with('-') { -units } else { units };
        Some(Self { units, decimals: u8::try_from(decimals.len()).ok()? })
    }

    /// The amount that `text` gives as a whole number of units, `decimals` of
    /// whose digits stand behind the point: `4820` is `48.20` with two.
    pub fn parse_minor(text: &str, decimals: u8) -> Option<Self> {
        Self::parse(text).filter(|amount| amount.decimals == 0).map(|amount| Self { decimals, ..amount })
    }

    /// Whether it is more than nothing.
    pub fn is_positive(self) -> bool {
        self.units > 0
    }

    /// The same without its sign.
    #[must_use]
    pub fn abs(self) -> Self {
        Self { units: self.units.abs(), ..self }
    }

    /// Both in units of the finer of the two.
    fn aligned(self, other: Self) -> (i128, i128, u8) {
        let decimals = self.decimals.max(other.decimals);
        let units = |amount: Self| amount.units * 10_i128.pow(u32::from(decimals - amount.decimals));
        (units(self), units(other), decimals)
    }
}

impl ops::Add for Amount {
    type Output = Amount;
    fn add(self, other: Amount) -> Amount {
        let (left, right, decimals) = self.aligned(other);
        Amount { units: left + right, decimals }
    }
}

impl ops::Sub for Amount {
    type Output = Amount;
    fn sub(self, other: Amount) -> Amount {
        self + Amount { units: -other.units, ..other }
    }
}

impl Ord for Amount {
    /// By value; of equal ones, the one written with more decimals is greater,
    /// so that the greater of two is the same whichever came first.
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right, _) = self.aligned(*other);
        left.cmp(&right).then(self.decimals.cmp(&other.decimals))
    }
}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.units < 0 { "-" } else { "" };
        let decimals = usize::from(self.decimals);
        let digits = format!("{:0>width$}", self.units.unsigned_abs(), width = decimals + 1);
        let (whole, behind) = digits.split_at(digits.len() - decimals);
        let point = if decimals > 0 { "." } else { "" };
        write!(f, "{sign}{whole}{point}{behind}")
    }
}

/// A currency's code: 3 to 8 letters or digits, in capitals.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency(String);

impl Currency {
    /// The code that `text` is, in small letters or capitals.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (3..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        fits.then(|| Self(text.to_ascii_uppercase()))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// An amount of a currency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money {
    /// Of what.
    pub currency: Currency,
    /// How much.
    pub amount: Amount,
}

impl Money {
    /// What [`Money`]'s `Display` shows, read back.
    pub(super) fn from_stored(text: &str) -> Option<Self> {
        let (amount, currency) = text.split_once(' ')?;
        Some(Self { currency: Currency::parse(currency)?, amount: Amount::from_stored(amount)? })
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.currency)
    }
}

/// Amounts of several currencies; nothing is ever converted. Nearly always of
/// one, or of none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals(BTreeMap<Currency, Amount>);

impl Totals {
    /// How much of `currency`.
    pub fn of(&self, currency: &Currency) -> Option<Amount> {
        self.0.get(currency).copied()
    }

    /// Every currency's amount.
    pub fn iter(&self) -> impl Iterator<Item = (&Currency, Amount)> {
        self.0.iter().map(|(currency, amount)| (currency, *amount))
    }

    /// Whether it holds no currency at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is more than nothing of any currency.
    pub fn is_positive(&self) -> bool {
        self.0.values().any(|amount| amount.is_positive())
    }

    /// Counts `money` in.
    pub(super) fn add(&mut self, money: &Money) {
        let sum = self.of(&money.currency).map_or(money.amount, |before| before + money.amount);
        self.0.insert(money.currency.clone(), sum);
    }

    /// Makes `currency`'s amount at least `amount`.
    pub(super) fn raise(&mut self, currency: &Currency, amount: Amount) {
        let most = self.of(currency).map_or(amount, |before| before.max(amount));
        self.0.insert(currency.clone(), most);
    }

    /// Makes each currency's amount at least that of `other`.
    pub(super) fn raise_all(&mut self, other: &Totals) {
        other.iter().for_each(|(currency, amount)| self.raise(currency, amount));
    }
}

impl FromIterator<(Currency, Amount)> for Totals {
    fn from_iter<I: IntoIterator<Item = (Currency, Amount)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (number, (currency, amount)) in self.iter().enumerate() {
            write!(f, "{}{amount} {currency}", if number > 0 { " and " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    #[test]
    fn an_amount_is_shown_as_it_was_written() {
        for text in ["0", "0.00", "48.20", "-0.05", "999999999999999.99999999", "1000", "0.001"] {
            assert_eq!(amount(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_plain_decimal_is_no_amount() {
        let too_long = format!("{}1", "0".repeat(Amount::MAX_WHOLE_DIGITS));
        for text in ["", "-", ".", "1.", ".5", "1e3", "1,00", "+1", "--1", " 1", "NaN", "1.000000001", "١", &too_long]
        {
            assert_eq!(Amount::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_third_of_a_cent_more_or_less_is_no_rounding_error() {
        let sum = (0..10).fold(amount("0"), |sum, _| sum + amount("0.10"));
        assert_eq!(sum, amount("1.00"));
        assert_eq!(amount("48.20") - amount("21.6"), amount("26.60"));
        assert_eq!((amount("1.005") + amount("2")).to_string(), "3.005");
    }

    #[test]
    fn amounts_compare_by_value() {
        assert!(amount("9.9") < amount("10"));
        assert!(amount("-2") < amount("-1.5"));
        assert_eq!(amount("48.2").max(amount("48.20")), amount("48.20"));
        assert!(!amount("0.00").is_positive() && !amount("-1").is_positive() && amount("0.01").is_positive());
    }

    #[test]
    fn a_sum_of_the_greatest_amounts_is_read_back() {
        let greatest = amount("999999999999999.99999999");
        let sum = (0..1000).fold(greatest, |sum, _| sum + greatest);
        assert_eq!(Amount::parse(&sum.to_string()), None);
        assert_eq!(Amount::from_stored(&sum.to_string()), Some(sum));
    }

    #[test]
    fn minor_units_are_whole() {
        assert_eq!(Amount::parse_minor("4820", 2), Some(amount("48.20")));
        assert_eq!(Amount::parse_minor("5", 2).unwrap().to_string(), "0.05");
        assert_eq!(Amount::parse_minor("-5", 3).unwrap().to_string(), "-0.005");
        assert_eq!(Amount::parse_minor("500", 0), Some(amount("500")));
        assert_eq!(Amount::parse_minor("48.20", 2), None);
    }

    #[test]
    fn a_currency_is_a_short_code_in_capitals() {
        assert_eq!(Currency::parse("usd").unwrap().as_str(), "USD");
        for text in ["", "US", "US DOLLAR", "DOLLARCENT", "€€€"] {
            assert_eq!(Currency::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn money_of_two_currencies_is_never_one_sum() {
        let money = |text: &str| Money::from_stored(text).unwrap();
        let mut totals = Totals::default();
        assert_eq!(totals.to_string(), "nothing");
        for text in ["1.50 USD", "2 EUR", "1.5 USD"] {
            totals.add(&money(text));
        }
        assert_eq!(totals.to_string(), "2 EUR and 3.00 USD");
        totals.raise_all(&[(Currency::parse("USD").unwrap(), amount("2.99"))].into_iter().collect());
        assert_eq!(totals.to_string(), "2 EUR and 3.00 USD");
    }

    proptest! {
        #[test]
        fn an_amount_that_is_shown_is_read_back(whole in 0..10_u64.pow(15), decimals in "[0-9]{0,8}", negative: bool) {
            let point = if decimals.is_empty() { "" } else { "." };
            let text = format!("{}{whole}{point}{decimals}", if negative { "-" } else { "" });
            let parsed = amount(&text);
            prop_assert_eq!(Amount::parse(&parsed.to_string()), Some(parsed));
        }

        #[test]
        fn what_is_added_and_taken_away_again_leaves_the_value(
            units in (-10_i64.pow(15)..10_i64.pow(15), -10_i64.pow(15)..10_i64.pow(15)),
            decimals in (0..9_u8, 0..9_u8),
        ) {
            let a = Amount { units: units.0.into(), decimals: decimals.0 };
            let b = Amount { units: units.1.into(), decimals: decimals.1 };
            prop_assert_eq!(a + b, b + a);
            let (left, right, _) = (a + b - b).aligned(a);
            prop_assert_eq!(left, right);
        }

        #[test]
        fn parser_never_panics_on_text(text in any::<String>(), near in "-?[0-9]{0,20}[.]?[0-9]{0,12}") {
            let _ = (Amount::parse(&text), Amount::parse(&near), Currency::parse(&text), Money::from_stored(&text));
        }
    }
}
