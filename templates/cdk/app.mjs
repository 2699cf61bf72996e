import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { App, Stack } from "aws-cdk-lib";
import { CfnInclude } from "aws-cdk-lib/cloudformation-include";
import { Asset } from "aws-cdk-lib/aws-s3-assets";

// What `just dist` made, or a release holds.
const dist = process.env.DIST ?? "dist";
// The CDK takes no `!Ref Ingest.Alias`. This is the same to SAM's transform.
const templateFile = join(mkdtempSync(join(tmpdir(), "webhooks-")), "template.yaml");
writeFileSync(templateFile, readFileSync(`${dist}/template.yaml`, "utf8").replace(/!Ref (\w+\.Alias)/g, '!Sub "${$1}"'));

const app = new App();
const stack = new Stack(app, "webhooks");
const serializer = new CfnInclude(stack, "serializer", {
  templateFile,
  // Functions and the alarms that roll them back name each other; SAM takes them apart.
  allowCyclicalReferences: true,
  parameters: { FrontDoor: "http-api", AlarmEmail: "oncall@example.com" },
});
for (const name of ["Ingest", "Worker", "Scheduler"]) {
  const code = new Asset(stack, `${name}Code`, { path: `${dist}/arm64/${name.toLowerCase()}.zip` });
  serializer.getResource(name).codeUri = { bucket: code.s3BucketName, key: code.s3ObjectKey };
}
// What the handler touches besides, say a table of yours:
// myTable.grantReadWriteData(Role.fromRoleArn(stack, "WorkerRole", serializer.getResource("WorkerRole").attrArn));
app.synth();
