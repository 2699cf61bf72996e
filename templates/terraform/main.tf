variable "bucket" {
  description = "An S3 bucket in the stack's region, for the functions' code and the template."
  type        = string
}

variable "dist" {
  description = "The folder that `just dist` made, or a release holds."
  type        = string
  default     = "dist"
}

locals {
  # Another release is another place, so that CloudFormation sees that its code is new.
  prefix    = "webhook-serializer/${filesha256("${var.dist}/SHA256SUMS")}"
  functions = toset(["ingest", "worker", "scheduler"])
}

resource "aws_s3_object" "code" {
  for_each    = local.functions
  bucket      = var.bucket
  key         = "${local.prefix}/arm64/${each.key}.zip"
  source      = "${var.dist}/arm64/${each.key}.zip"
  source_hash = filesha256("${var.dist}/arm64/${each.key}.zip")
}

# Too long for `template_body`.
resource "aws_s3_object" "template" {
  bucket  = var.bucket
  key     = "${local.prefix}/template.yaml"
  content = replace(file("${var.dist}/template.yaml"), "CodeUri: arm64/", "CodeUri: s3://${var.bucket}/${local.prefix}/arm64/")
}

resource "aws_cloudformation_stack" "webhooks" {
  name         = "webhook-serializer"
  template_url = "https://${var.bucket}.s3.amazonaws.com/${aws_s3_object.template.key}"
  capabilities = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
  parameters = {
    FrontDoor  = "http-api"
    AlarmEmail = "oncall@example.com"
  }
  depends_on = [aws_s3_object.code]
}

output "webhook_url" {
  value = aws_cloudformation_stack.webhooks.outputs["WebhookUrl"]
}
