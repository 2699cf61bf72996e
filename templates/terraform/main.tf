variable "bucket" {
  description = "An S3 bucket in the stack's region, for the functions' code."
  type        = string
}

variable "dist" {
  description = "The folder that `just dist` made, or a release holds."
  type        = string
  default     = "dist"
}

variable "email" {
  description = "Where alarms are sent."
  type        = string
}

locals {
  functions = toset(["ingest", "worker", "scheduler"])
  # Other code is another place, so that CloudFormation sees that it is new.
  prefix = "webhook-serializer/${sha256(join("", [for name in local.functions : filesha256("${var.dist}/arm64/${name}.zip")]))}"
}

resource "aws_s3_object" "code" {
  for_each    = local.functions
  bucket      = var.bucket
  key         = "${local.prefix}/arm64/${each.key}.zip"
  source      = "${var.dist}/arm64/${each.key}.zip"
  source_hash = filesha256("${var.dist}/arm64/${each.key}.zip")
  # CloudFormation needs the old code for a rollback: it goes after the update.
  lifecycle { create_before_destroy = true }
}

resource "aws_cloudformation_stack" "webhooks" {
  name          = "webhook-serializer"
  template_body = replace(file("${var.dist}/template.yaml"), "CodeUri: arm64/", "CodeUri: s3://${var.bucket}/${local.prefix}/arm64/")
  capabilities  = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
  # Terraform resets what is not here to its default.
  parameters = {
    FrontDoor = "http-api"
    # The prefix of the tables to use, once they are restored ones.
    Tables = ""
  }
  depends_on = [aws_s3_object.code]
}

# It reads the outputs of the core when it is deployed, and again with another value of Deployed.
resource "aws_cloudformation_stack" "observability" {
  name          = "webhook-serializer-observability"
  template_body = file("${var.dist}/templates/observability.yaml")
  parameters = {
    Core     = aws_cloudformation_stack.webhooks.name
    Deployed = sha256(jsonencode(aws_cloudformation_stack.webhooks.outputs))
    Email    = var.email
  }
  depends_on = [aws_cloudformation_stack.webhooks]
}

output "webhook_url" {
  value = aws_cloudformation_stack.webhooks.outputs["WebhookUrl"]
}
