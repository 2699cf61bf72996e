//! Who a program is in AWS where no function's environment says so: as every
//! AWS SDK finds out. A profile, a web identity (as on EKS), a container's role
//! (ECS, EKS), an instance's role (EC2). What expires is asked for anew before
//! it does, by the clients.

use super::{Account, bundle};
use crate::{
    config::{InvalidConfig, Variables},
    tls::Roots,
};

/// Finds out.
///
/// # Errors
///
/// There is no region, or nobody to be.
pub(super) async fn account(variables: &impl Variables) -> Result<Account, InvalidConfig> {
    // In no hurry to start, and a company's proxy is known to its machines.
    let roots = bundle(variables)?.unwrap_or_else(Roots::machine);
    let http = Account { roots: Some(roots.clone()), ..Account::local("", "") }.http_client();
    let found = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let nowhere = || InvalidConfig::new("AWS_REGION", "is not set, and neither profile nor instance names a region");
    let nobody = || InvalidConfig::new("AWS_ACCESS_KEY_ID", "is not set, and there are no other credentials");
    let region = found.region().ok_or_else(nowhere)?;
    Ok(Account::of(region.clone(), found.credentials_provider().ok_or_else(nobody)?, roots))
}
