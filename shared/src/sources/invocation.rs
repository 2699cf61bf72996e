//! The Lambda function that the `invoke` handler calls.

use std::fmt;

use super::reference::{FUNCTION, FieldForm::Text, QUALIFIER, document_table};

document_table! {
    /// The Lambda function that the handler `invoke` calls with deliveries. Only with `handler = "invoke"`. The
    /// template's parameter `InvokeFunctionArns` names the functions that the worker may call.
    #[table("[sources.NAME.invoke]")]
    pub(crate) struct FunctionEntry {
        /// The function's name, or its ARN without a qualifier. It is in the worker's region.
        #[field(Text(FUNCTION), required, example("orders"))]
        function: String,
        /// An alias, or a version's number.
        #[field(Text(QUALIFIER), means("the latest version"), example("live"))]
        qualifier: Option<String>,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    name: String,
    qualifier: Option<String>,
}

impl Function {
    pub(crate) fn check(entry: FunctionEntry) -> Result<Self, String> {
        let FunctionEntry { function: name, qualifier } = entry;
        if is_qualified(&name) {
            return Err("`invoke.function` ends with a version or alias; put that into `invoke.qualifier`".into());
        }
        if !is_name(&name) && !is_arn(&name) {
            return Err("`invoke.function` must be a Lambda function's name or its whole ARN".into());
        }
        if !qualifier.as_deref().is_none_or(is_qualifier) {
            return Err("`invoke.qualifier` must be an alias, such as `live`, or a version number".into());
        }
        Ok(Self { name, qualifier })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the function without its qualifier. Lambda then calls the code that was deployed
    /// last, `$LATEST`.
    pub fn unqualified(&self) -> Self {
        Self { name: self.name.clone(), qualifier: None }
    }

    pub fn path(&self, call: &str) -> String {
        let path = format!("/2015-03-31/functions/{}/{call}", self.name.replace(':', "%3A"));
        match self.qualifier() {
            Some(qualifier) => format!("{path}?Qualifier={}", qualifier.replace('$', "%24")),
            None => path,
        }
    }

    pub fn qualifier(&self) -> Option<&str> {
        self.qualifier.as_deref()
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.qualifier.as_ref().map_or(Ok(()), |qualifier| write!(f, ":{qualifier}"))
    }
}

fn is_word(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn is_name(text: &str) -> bool {
    is_word(text, 64)
}

fn is_qualifier(text: &str) -> bool {
    is_word(text, 128) || text == "$LATEST"
}

fn is_arn(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let ["arn", partition, "lambda", region, account, "function", name] = parts[..] else { return false };
    partition.starts_with("aws")
        && is_word(partition, 32)
        && is_word(region, 32)
        && account.len() == 12
        && account.bytes().all(|b| b.is_ascii_digit())
        && is_name(name)
}

fn is_qualified(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(name, qualifier)| (is_name(name) || is_arn(name)) && is_qualifier(qualifier))
}

#[cfg(test)]
mod tests {
    use super::Function;
    use crate::sources::Sources;

    fn refused(rest: &str) -> String {
        let document = format!("[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\n{rest}");
        Sources::parse(&document).unwrap_err().to_string()
    }

    fn checked(invoke: &str) -> Result<Function, String> {
        let document = format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'invoke'\ninvoke = {{ {invoke} }}\n");
        let sources = Sources::parse(&document).map_err(|error| error.to_string())?;
        Ok(sources.get("shop").unwrap().invoke().unwrap().clone())
    }

    const ARN: &str = "arn:aws:lambda:eu-central-1:123456789012:function:orders";

    #[test]
    fn function_is_name_or_arn_with_optional_qualifier() {
        for (invoke, expected) in [
            ("function = 'orders'".to_owned(), "orders".to_owned()),
            ("function = 'shop_Orders-2', qualifier = 'live'".to_owned(), "shop_Orders-2:live".to_owned()),
            ("function = 'orders', qualifier = '17'".to_owned(), "orders:17".to_owned()),
            ("function = 'orders', qualifier = '$LATEST'".to_owned(), "orders:$LATEST".to_owned()),
            (format!("function = '{ARN}', qualifier = 'live'"), format!("{ARN}:live")),
            (format!("function = '{}'", ARN.replace("aws", "aws-us-gov")), ARN.replace("aws", "aws-us-gov")),
        ] {
            assert_eq!(checked(&invoke).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn invalid_function_name_or_arn_is_refused() {
        let names = ["", "two words", "orders/7", "https://example.com/", &ARN.replace("function", "layer"), &ARN[4..]];
        for name in names.map(str::to_owned).into_iter().chain(["a".repeat(65), ARN.replace("1234", "12")]) {
            let refused = checked(&format!("function = '{name}'")).unwrap_err();
            let reason = "source `shop`: `invoke.function` must be a Lambda function's name or its whole ARN";
            assert_eq!(refused, reason, "{name}");
        }
        for name in ["orders:live".to_owned(), format!("{ARN}:$LATEST")] {
            let refused = checked(&format!("function = '{name}'")).unwrap_err();
            assert!(refused.ends_with("put that into `invoke.qualifier`"), "{refused}");
        }
        for qualifier in ["", "a b", "$OLDEST"] {
            let refused = checked(&format!("function = 'orders', qualifier = '{qualifier}'")).unwrap_err();
            assert!(refused.contains("`invoke.qualifier` must be an alias"), "{refused}");
        }
    }

    #[test]
    fn invoke_table_requires_handler_invoke() {
        let without = refused("handler = 'invoke'");
        assert_eq!(without, "source `shop`: handler = \"invoke\" needs a table `invoke` with `function`");
        let with = refused("handler = 'orders'\ninvoke = { function = 'orders' }");
        assert_eq!(with, "source `shop`: a table `invoke` needs handler = \"invoke\"; write that, or remove the table");
        let both = refused(
            "handler = 'invoke'\ninvoke = { function = 'orders' }\n\
             forward = { url = 'https://example.com/', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY' }",
        );
        assert_eq!(
            both,
            "source `shop`: a table `forward` needs handler = \"forward\"; write that, or remove the table"
        );
    }
}
