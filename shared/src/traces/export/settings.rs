//! Reads and validates OpenTelemetry's environment variables.

use std::time::Duration;

use http::Uri;
use opentelemetry_sdk::Resource;

use crate::tls::Roots;

pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The longest timeout for sending spans. The function takes no event while it sends.
const MOST_PATIENCE: Duration = Duration::from_secs(2);

/// A lookup of environment variables. Returns `None` for a variable that is unset or empty.
pub type SettingReader<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(super) struct ExportSettings {
    pub(super) endpoint: String,
    pub(super) host: String,
    pub(super) patience: Duration,
    pub(super) resource: Resource,
    pub(super) roots: Roots,
}

impl ExportSettings {
    pub(super) fn read(variables: SettingReader<'_>) -> Result<Option<Self>, String> {
        let is = |name: &str, value: &str| variables(name).is_some_and(|is| is.eq_ignore_ascii_case(value));
        let Some((name, endpoint)) = first(variables, ENDPOINT) else { return Ok(None) };
        let endpoint =
            if name == ENDPOINT[0] { endpoint } else { endpoint.trim_end_matches('/').to_owned() + "/v1/traces" };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let host = match endpoint.parse::<Uri>() {
            Ok(uri) if matches!(uri.scheme_str(), Some("http" | "https")) => uri.host().unwrap_or_default().to_owned(),
            _ => return Err(format!("{name}: the value must be an http:// or https:// URL")),
        };
        // The SDK silently ignores invalid values.
        sampler(variables)?;
        headers(variables)?;
        let patience = patience(variables)?;
        let roots = roots(variables)?;
        let resource = resource(variables);
        Ok(Some(Self { endpoint, host, patience, resource, roots }))
    }
}

/// The names of two variables. The first variable is for traces, and overrides the second, which is for all
/// signals.
type Names = [&'static str; 2];

const ENDPOINT: Names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const TIMEOUT: Names = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const CERTIFICATE: Names = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const HEADERS: Names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

fn first(variables: SettingReader<'_>, names: Names) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variables(name)?)))
}

fn patience(variables: SettingReader<'_>) -> Result<Duration, String> {
    let Some((name, value)) = first(variables, TIMEOUT) else { return Ok(PATIENCE) };
    match value.parse() {
        // In OpenTelemetry, 0 means no limit.
        Ok(0) => Ok(MOST_PATIENCE),
        Ok(millis) => Ok(Duration::from_millis(millis).min(MOST_PATIENCE)),
        Err(_) => Err(format!("{name}: {value:?} is not a number of milliseconds")),
    }
}

fn sampler(variables: SettingReader<'_>) -> Result<(), String> {
    let name = "OTEL_TRACES_SAMPLER";
    let argument = "OTEL_TRACES_SAMPLER_ARG";
    let said = variables(name);
    match said.as_deref().map(|sampler| sampler.strip_prefix("parentbased_").unwrap_or(sampler)) {
        None | Some("always_on" | "always_off") => Ok(()),
        Some("traceidratio") => {
            let ratio = variables(argument).map_or(Ok(1.0), |ratio| ratio.parse::<f64>());
            let is_one = ratio.is_ok_and(|ratio| (0.0..=1.0).contains(&ratio));
            if is_one { Ok(()) } else { Err(format!("{argument}: the value must be a number from 0 to 1")) }
        }
        Some(_) => Err(format!(
            "{name}: {:?} is not a supported sampler: use parentbased_always_on, parentbased_traceidratio or \
             traceidratio",
            said.unwrap_or_default()
        )),
    }
}

/// Checks that each header has a name. The error quotes no header, because a header may be secret.
fn headers(variables: SettingReader<'_>) -> Result<(), String> {
    let Some((name, headers)) = first(variables, HEADERS) else { return Ok(()) };
    let is_one = |header: &str| header.split_once('=').is_some_and(|(name, _)| !name.trim().is_empty());
    let mut headers = headers.split(',').filter(|header| !header.trim().is_empty());
    if headers.all(is_one) {
        Ok(())
    } else {
        Err(format!("{name}: the value must be a list such as name=value,name=value"))
    }
}

fn roots(variables: SettingReader<'_>) -> Result<Roots, String> {
    let mut roots = Roots::mozilla();
    if let Some((name, path)) = first(variables, CERTIFICATE) {
        let pem = std::fs::read(&path).map_err(|error| format!("{name}: {path} cannot be read: {error}"))?;
        roots.add(&pem).map_err(|reason| format!("{name}: {path} {reason}"))?;
    }
    Ok(roots)
}

/// Returns the resource attributes of all spans. The function's name becomes the service name, unless a
/// variable sets another one.
fn resource(variables: SettingReader<'_>) -> Resource {
    let is_name = |one: &str| one.trim_start().starts_with("service.name=");
    let named = variables("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.split(',').any(is_name));
    let function = variables("AWS_LAMBDA_FUNCTION_NAME").filter(|_| !named);
    match variables("OTEL_SERVICE_NAME").or(function) {
        Some(name) => Resource::builder().with_service_name(name).build(),
        None => Resource::builder().build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(set: &[(&str, &str)], name: &str) -> Option<String> {
        set.iter().find(|(held, _)| *held == name).map(|(_, value)| (*value).to_owned())
    }

    fn configured(set: &[(&str, &str)]) -> Result<Option<String>, String> {
        let settings = ExportSettings::read(&|name| variable(set, name))?;
        Ok(settings.map(|settings| format!("{} {:?}", settings.host, settings.patience)))
    }

    #[test]
    fn invalid_otel_variable_is_named() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector.example/otlp");
        for off in [&[][..], &[base, ("OTEL_SDK_DISABLED", "True")], &[traces, ("OTEL_TRACES_EXPORTER", "none")]] {
            assert_eq!(configured(off), Ok(None));
        }
        let on = |set: &[(&str, &str)]| configured(set).unwrap().unwrap();
        assert_eq!(on(&[base]), "localhost 1s");
        assert_eq!(on(&[base, traces, ("OTEL_EXPORTER_OTLP_TIMEOUT", "250")]), "collector.example 250ms");
        assert_eq!(on(&[base, ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000")]), "localhost 2s");
        assert_eq!(on(&[base, ("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]), "localhost 2s");
        let ratio = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        assert_eq!(on(&[base, ratio, ("OTEL_TRACES_SAMPLER_ARG", "0.05")]), "localhost 1s");
        assert_eq!(on(&[base, ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hush=, x=1,")]), "localhost 1s");
        for (wrong, named) in [
            (("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"), "OTEL_EXPORTER_OTLP_ENDPOINT: "),
            (("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost"), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "),
            (("OTEL_TRACES_SAMPLER", "some"), "OTEL_TRACES_SAMPLER: \"some\""),
            (("OTEL_EXPORTER_OTLP_HEADERS", "hush"), "OTEL_EXPORTER_OTLP_HEADERS: the value must be a list"),
            (("OTEL_EXPORTER_OTLP_TIMEOUT", "1s"), "OTEL_EXPORTER_OTLP_TIMEOUT: "),
            (("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere"), "OTEL_EXPORTER_OTLP_CERTIFICATE: /nowhere cannot"),
        ] {
            let reason = configured(&[wrong, traces][..if wrong.0.ends_with("ENDPOINT") { 1 } else { 2 }]);
            let reason = reason.unwrap_err();
            assert!(reason.starts_with(named) && !reason.contains("hush"), "{reason}");
        }
        let percent = configured(&[base, ratio, ("OTEL_TRACES_SAMPLER_ARG", "5%")]).unwrap_err();
        assert!(percent.starts_with("OTEL_TRACES_SAMPLER_ARG: "), "{percent}");
    }

    #[test]
    fn service_name_defaults_to_the_function() {
        let name = |set: &[(&str, &str)]| {
            resource(&|name| variable(set, name)).get(&"service.name".into()).unwrap().to_string()
        };
        let function = ("AWS_LAMBDA_FUNCTION_NAME", "shop-Worker");
        assert_eq!(name(&[function]), "shop-Worker");
        assert_eq!(name(&[function, ("OTEL_SERVICE_NAME", "webhooks")]), "webhooks");
        assert_eq!(name(&[function, ("OTEL_RESOURCE_ATTRIBUTES", "peer.service.name=other")]), "shop-Worker");
    }
}
