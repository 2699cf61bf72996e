//! Reads CloudFormation stacks that were made from this project's template.

pub mod api;

use std::collections::BTreeMap;

use anyhow::{Error, Result, bail};

use crate::stack::api::{Refusal, Service, Services, xml::Element};

pub const VERSION: &str = "2010-05-15";

/// The stack output that a shell evaluates to set the command's variables.
const COMMAND_LINE: &str = "CommandLine";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    pub name: String,
    pub id: String,
    pub status: String,
    pub outputs: BTreeMap<String, String>,
    pub parameters: BTreeMap<String, String>,
    /// The result of the last drift detection, and its time.
    pub drift: (String, Option<String>),
}

impl Stack {
    pub async fn find(services: &Services, name: &str) -> Result<Self> {
        let told = services.query(Service::CLOUDFORMATION, VERSION, "DescribeStacks", &[("StackName", name)]).await;
        match told {
            Ok(told) => match told.what.at(&["DescribeStacksResult", "Stacks", "member"]) {
                Some(stack) => Ok(Self::read(name, stack)),
                None => bail!("CloudFormation's answer does not contain the stack `{name}`"),
            },
            Err(Refusal::Other { code, message })
                if code == "ValidationError" && message.contains("does not exist") =>
            {
                bail!(
                    "there is no stack `{name}` in {} in the account of these credentials. Give another \
                     region with --region, another account with --profile; `aws cloudformation list-stacks` lists names",
                    services.region()
                )
            }
            Err(refusal) => Err(Error::new(refusal).context(format!("the stack `{name}` cannot be read"))),
        }
    }

    /// Returns the ARN of a service's resource in the stack's account and region. Returns `None` if these cannot be read
    /// from the stack's id.
    pub fn arn(&self, service: &str, resource: &str) -> Option<String> {
        let [arn, partition, _, region, account, ..] = self.id.split(':').collect::<Vec<_>>()[..] else { return None };
        (arn == "arn").then(|| format!("arn:{partition}:{service}:{region}:{account}:{resource}"))
    }

    fn read(name: &str, stack: &Element) -> Self {
        let checked = stack.text(&["DriftInformation", "LastCheckTimestamp"]);
        Self {
            name: name.to_owned(),
            id: stack.text(&["StackId"]).to_owned(),
            status: stack.text(&["StackStatus"]).to_owned(),
            outputs: stack.pairs(&["Outputs"], ["OutputKey", "OutputValue"]).into_iter().collect(),
            parameters: stack.pairs(&["Parameters"], ["ParameterKey", "ParameterValue"]).into_iter().collect(),
            drift: (
                stack.text(&["DriftInformation", "StackDriftStatus"]).to_owned(),
                Some(checked.to_owned()).filter(|checked| !checked.is_empty()),
            ),
        }
    }

    pub fn variables(&self) -> Result<BTreeMap<String, String>> {
        let Some(line) = self.outputs.get(COMMAND_LINE) else {
            let name = &self.name;
            let status = &self.status;
            match status.as_str() {
                "CREATE_IN_PROGRESS" | "REVIEW_IN_PROGRESS" => {
                    bail!("the stack `{name}` is still being created ({status}); run this again when it is complete")
                }
                _ => bail!(
                    "the stack `{name}` ({status}) has no output {COMMAND_LINE}, so it was not made from this project's \
                     template.yaml. Check the name, or give --entities-table, --inbox-table and --queue-url"
                ),
            }
        };
        let words = line.split_whitespace().filter_map(|word| word.split_once('='));
        Ok(words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn number(&self, parameter: &str) -> Option<u64> {
        self.parameters.get(parameter)?.parse().ok()
    }

    pub fn logs_of(&self, function: &str) -> String {
        format!("/aws/lambda/{}-{function}", self.name)
    }
}
