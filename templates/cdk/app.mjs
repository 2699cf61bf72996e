import { App, Stack } from "aws-cdk-lib";
import { CfnInclude } from "aws-cdk-lib/cloudformation-include";
import { Asset } from "aws-cdk-lib/aws-s3-assets";

// The folder that `just dist` made, or a release holds.
const dist = process.env.DIST ?? "dist";
const app = new App();
const stack = new Stack(app, "webhooks");
const serializer = new CfnInclude(stack, "serializer", {
  templateFile: `${dist}/template.yaml`,
  // The CDK deploys what is not here with its default. Tables: the prefix of the tables to use, once they are restored ones.
  parameters: { FrontDoor: "http-api", Tables: "" },
});
for (const name of ["Ingest", "Worker", "Scheduler"]) {
  const code = new Asset(stack, `${name}Code`, { path: `${dist}/arm64/${name.toLowerCase()}.zip` });
  serializer.getResource(name).codeUri = { bucket: code.s3BucketName, key: code.s3ObjectKey };
}
// Grant the handler what else it touches, such as a table of yours. Not by a grant of the table, whose inline policy would
// look like a manual change of the role:
// const role = Role.fromRoleArn(stack, "HandlerRole", serializer.getResource("WorkerRole").attrArn);
// const use = new PolicyStatement({ actions: ["dynamodb:PutItem"], resources: [myTable.tableArn] });
// new ManagedPolicy(stack, "HandlerRights", { roles: [role], statements: [use] });
app.synth();
