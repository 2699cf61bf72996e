//! Builds the names of the endpoints of AWS services.

use crate::config::Variables;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Variant {
    pub fips: bool,
    pub dual_stack: bool,
}

impl Variant {
    pub(super) fn read(variables: &impl Variables) -> Self {
        let is_on = |name| variables.value(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Self { fips: is_on("AWS_USE_FIPS_ENDPOINT"), dual_stack: is_on("AWS_USE_DUALSTACK_ENDPOINT") }
    }

    pub(super) fn endpoint(self, service: &str, region: &str) -> String {
        // In GovCloud most plain endpoints are FIPS-validated and have no `-fips` name.
        let is_plain = region.starts_with("us-gov-")
            && !self.dual_stack
            && !matches!(service, "lambda" | "kms" | "secretsmanager");
        let fips = if self.fips && !is_plain { "-fips" } else { "" };
        let (plain, dual) = suffixes(region);
        format!("https://{service}{fips}.{region}.{}", if self.dual_stack { dual } else { plain })
    }
}

/// Returns the domains of the IPv4 and the dual-stack endpoints in the region's AWS partition.
///
/// The table is a copy of the one in the AWS SDK.
fn suffixes(region: &str) -> (&'static str, &'static str) {
    const PARTITIONS: [(&str, &str, &str); 6] = [
        ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
        ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
        ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
        ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
        ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ];
    let known = PARTITIONS.iter().find(|(prefix, ..)| region.starts_with(prefix));
    known.map_or(("amazonaws.com", "api.aws"), |(_, plain, dual)| (plain, dual))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::endpoint as dynamodb;
    use aws_sdk_sqs::config::endpoint as sqs;

    use super::*;

    async fn asked(region: &str, variant: Variant) -> [String; 2] {
        let Variant { fips, dual_stack } = variant;
        let params = dynamodb::Params::builder().region(region.to_owned()).use_fips(fips).use_dual_stack(dual_stack);
        let params = params.build().unwrap();
        let tables = dynamodb::ResolveEndpoint::resolve_endpoint(&dynamodb::DefaultResolver::new(), &params).await;
        let params = sqs::Params::builder().region(region.to_owned()).use_fips(fips).use_dual_stack(dual_stack);
        let params = params.build().unwrap();
        let queues = sqs::ResolveEndpoint::resolve_endpoint(&sqs::DefaultResolver::new(), &params).await;
        [tables.unwrap().url().to_owned(), queues.unwrap().url().to_owned()]
    }

    /// Promise: FIPS and dual-stack endpoints are AWS's.
    #[tokio::test]
    async fn computed_endpoints_equal_sdk_endpoints() {
        for region in ["eu-central-1", "us-east-2", "us-gov-west-1", "us-gov-east-1", "cn-north-1", "eusc-de-east-1"] {
            for (fips, dual_stack) in [(false, false), (true, false), (false, true), (true, true)] {
                let variant = Variant { fips, dual_stack };
                let named = ["dynamodb", "sqs"].map(|service| variant.endpoint(service, region));
                assert_eq!(named, asked(region, variant).await, "{region} {variant:?}");
            }
        }
        for region in ["us-iso-east-1", "us-isob-east-1", "us-isof-south-1", "eu-isoe-west-1"] {
            let plain = Variant::default();
            assert_eq!(plain.endpoint("sqs", region), asked(region, plain).await[1], "{region}");
        }
    }

    #[test]
    fn endpoint_variant_is_read_from_sdk_variables() {
        let read = |set: &[(&str, &str)]| Variant::read(&set);
        assert_eq!(read(&[("AWS_USE_FIPS_ENDPOINT", "false")]), Variant::default());
        assert_eq!(read(&[("AWS_USE_FIPS_ENDPOINT", "True")]), Variant { fips: true, dual_stack: false });
        assert_eq!(read(&[("AWS_USE_DUALSTACK_ENDPOINT", "true")]), Variant { fips: false, dual_stack: true });
    }

    #[test]
    fn govcloud_has_fips_endpoints_for_some_services() {
        let fips = Variant { fips: true, dual_stack: false };
        assert_eq!(fips.endpoint("ssm", "us-gov-west-1"), "https://ssm.us-gov-west-1.amazonaws.com");
        assert_eq!(fips.endpoint("kms", "us-gov-west-1"), "https://kms-fips.us-gov-west-1.amazonaws.com");
        assert_eq!(fips.endpoint("ssm", "us-east-1"), "https://ssm-fips.us-east-1.amazonaws.com");
    }
}
