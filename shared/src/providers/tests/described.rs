//! What each sample in `events/` is about.

/// A file and what it describes: the delivery id, topic, family, account, event
/// time in milliseconds, entity.
pub type Expected =
    (&'static str, &'static str, &'static str, &'static str, Option<&'static str>, Option<u64>, &'static str);

/// Those that are a sender's check whether anybody is there.
pub const PINGS: [&str; 2] = ["stripe-thin-ping.json", "woocommerce-ping.json"];

#[rustfmt::skip]
pub const DESCRIBED: &[Expected] = &[
    ("adobe-commerce-creditmemo-save-after.json", "observer.sales_order_creditmemo_save_after/sha256:qAMZfPwqTtgt30pmEZB2ErFtaPacLZdtfU-0aHjOs-s", "observer.sales_order_creditmemo_save_after", "observer.sales_order_creditmemo_save", None, Some(1_767_801_600_000), "order/42"),
    ("adobe-commerce-order-save-after.json", "observer.sales_order_save_after/sha256:Ung2YwGbTdq0loIaJDQT2N9rBUNZ7qbwRdRAhbnWNYQ", "observer.sales_order_save_after", "observer.sales_order_save", Some("1"), Some(1_767_621_600_000), "order/42"),
    ("adobe-commerce-shipment-save-after.json", "observer.sales_order_shipment_save_after/sha256:qmLCgWalZ2jzzbHLP5RSsel-JNKSXmqkRvZWs_NyAlU", "observer.sales_order_shipment_save_after", "observer.sales_order_shipment_save", None, Some(1_767_712_500_000), "order/42"),
    ("aftership-edd-revise.json", "154eb3e7-5ee1-42a4-9fc0-b47552871ef1", "edd_revise", "edd_revise", None, Some(1_767_712_600_000), "order/450789469"),
    ("aftership-return-approved.json", "1aee6fb9-823b-48c4-b983-a1083e04814e", "return.approved", "return", None, Some(1_768_053_600_000), "order/450789469"),
    ("aftership-tracking-update.json", "2692a1de-ca5c-40b0-b250-1c7fd74e6b32", "tracking_update", "tracking_update", None, Some(1_767_880_860_000), "order/450789469"),
    ("bigcommerce-order-created.json", "c946042781ac8a17dab9bf096aa641b5f23e72a4/1767621600", "store/order/created", "store/order", Some("stores/abcde12345"), Some(1_767_621_600_000), "order/250"),
    ("bigcommerce-order-refund-created.json", "48a811470f8a37c398c8e37790c9a7ceef85d02e/1767801600", "store/order/refund/created", "store/order/refund", Some("stores/abcde12345"), Some(1_767_801_600_000), "order/250"),
    ("bigcommerce-order-status-updated.json", "c87737ef494073e4282ebb7a170a7f2811650d99/1767621700", "store/order/statusUpdated", "store/order", Some("stores/abcde12345"), Some(1_767_621_700_000), "order/250"),
    ("bigcommerce-order-transaction-created.json", "b67cfbf811f9f61e3375d2cb015d85bdd913e10c/1767621699", "store/order/transaction/created", "store/order/transaction", Some("stores/abcde12345"), Some(1_767_621_699_000), "order/250"),
    ("bigcommerce-shipment-created.json", "3595390b6590f3abfe469c41d2f532c9868bc749/1767712500", "store/shipment/created", "store/shipment", Some("stores/abcde12345"), Some(1_767_712_500_000), "order/250"),
    ("easypost-tracker-created.json", "evt_1b8b041229e4d5e67d2341a71f948000", "tracker.created", "tracker", Some("user_00000000000000000000000000000001"), Some(1_767_701_600_000), "tracker/trk_691bd7ce02d8c0edbc035ad0bf156947"),
    ("easypost-tracker-updated.json", "evt_71b1a976e0c1cfbee6ce055f4d94da91", "tracker.updated", "tracker", Some("user_00000000000000000000000000000001"), Some(1_767_880_830_000), "tracker/trk_691bd7ce02d8c0edbc035ad0bf156947"),
    ("etsy-order-canceled.json", "msg_2vExampleDev0Etsy0000000003", "order.canceled", "order", Some("51780431"), None, "order/3928471122"),
    ("etsy-order-delivered.json", "msg_2vExampleDev0Etsy0000000002", "order.delivered", "order", Some("51780431"), None, "order/3928471122"),
    ("etsy-order-paid.json", "msg_2vExampleDev0Etsy0000000000", "order.paid", "order", Some("51780431"), None, "order/3928471122"),
    ("etsy-order-shipped.json", "msg_2vExampleDev0Etsy0000000001", "order.shipped", "order", Some("51780431"), None, "order/3928471122"),
    ("generic-order-updated.json", "dlv_01ExampleDev0001", "order.updated", "order", None, Some(1_767_623_400_500), "order/9007199254740993"),
    ("shippo-track-updated-token.json", "track_updated/sha256:WSsFeouegVqicvahPiBuAt4UUSg-EyI8IA9ETSmtgC4", "track_updated", "track", None, Some(1_767_712_500_311), "tracking/92055901755477000000000022"),
    ("shippo-track-updated.json", "track_updated/sha256:tzN5tgJyvaI1hoK4zBhJwxKHGtc3is86P9H5IH6_GdQ", "track_updated", "track", None, Some(1_767_880_800_092), "transaction/915d94940ea54c3a80cbfa328722f5a1"),
    ("shippo-transaction-created.json", "transaction_created/sha256:C7jGzAEIa8osHac5FFtpZHjcYvLB1UmcGMzkCYMCbWA", "transaction_created", "transaction", Some("ops@example.com"), Some(1_767_701_603_842), "transaction/915d94940ea54c3a80cbfa328722f5a1"),
    ("shipstation-v1-item-order-notify.json", "ITEM_ORDER_NOTIFY/https://ssapi.shipstation.com/orders?storeID=206264&importBatch=21565fda-dd85-44f6-9baa-f1b3fb854ee6&includeItems=True", "ITEM_ORDER_NOTIFY", "ITEM_ORDER", None, None, "batch/21565fda-dd85-44f6-9baa-f1b3fb854ee6"),
    ("shipstation-v1-item-ship-notify.json", "ITEM_SHIP_NOTIFY/https://ssapi.shipstation.com/shipments?storeID=206264&batchId=1b5cde6f-b113-485e-bdc0-77a3e19a65a9&includeShipmentItems=True", "ITEM_SHIP_NOTIFY", "ITEM_SHIP", None, None, "batch/1b5cde6f-b113-485e-bdc0-77a3e19a65a9"),
    ("shipstation-v1-order-notify.json", "ORDER_NOTIFY/https://ssapi.shipstation.com/orders?storeID=206264&importBatch=21565fda-dd85-44f6-9baa-f1b3fb854ee6", "ORDER_NOTIFY", "ORDER", None, None, "batch/21565fda-dd85-44f6-9baa-f1b3fb854ee6"),
    ("shipstation-v1-ship-notify.json", "SHIP_NOTIFY/https://ssapi.shipstation.com/shipments?storeID=206264&batchId=1b5cde6f-b113-485e-bdc0-77a3e19a65a9&includeShipmentItems=False", "SHIP_NOTIFY", "SHIP", None, None, "batch/1b5cde6f-b113-485e-bdc0-77a3e19a65a9"),
    ("shopify-customers-data-request.json", "example.myshopify.com/customers/data_request/305c139b-58ff-4dd0-b2eb-89e8cf7edbef", "customers/data_request", "customers", Some("example.myshopify.com"), Some(1_770_213_600_355), "customers/9007199254740995"),
    ("shopify-customers-redact.json", "example.myshopify.com/customers/redact/477882ea-436a-4b0b-9af3-9cdb2dcacc9f", "customers/redact", "customers", Some("example.myshopify.com"), Some(1_771_077_600_689), "customers/9007199254740995"),
    ("shopify-event-order-update.json", "example.myshopify.com/Order/8c47013c-1bb2-4836-96ec-01eecac6c899", "Order/update", "Order", Some("example.myshopify.com"), Some(1_767_712_501_000), "order/450789469"),
    ("shopify-fulfillments-create.json", "example.myshopify.com/fulfillments/create/f8d6264d-6740-4873-a54f-6e70408aca33", "fulfillments/create", "fulfillments", Some("example.myshopify.com"), Some(1_767_712_500_000), "order/450789469"),
    ("shopify-order-transactions-create.json", "example.myshopify.com/order_transactions/create/3f83c73d-2dbc-4a90-8114-2dae02dda59b", "order_transactions/create", "order_transactions", Some("example.myshopify.com"), Some(1_767_621_701_083), "order/450789469"),
    ("shopify-orders-cancelled.json", "example.myshopify.com/orders/cancelled/dbc3eca6-87e7-4589-af7f-99416438176e", "orders/cancelled", "orders", Some("example.myshopify.com"), Some(1_767_880_800_000), "order/450789469"),
    ("shopify-orders-create.json", "example.myshopify.com/orders/create/15e8d2f1-73e1-49d3-ac54-9a486645fdcd", "orders/create", "orders", Some("example.myshopify.com"), Some(1_767_621_601_000), "order/450789469"),
    ("shopify-orders-edited.json", "example.myshopify.com/orders/edited/2434a37d-7a8b-4f04-8c51-cc9517ae692d", "orders/edited", "orders", Some("example.myshopify.com"), Some(1_767_625_201_140), "order/450789469"),
    ("shopify-orders-paid.json", "example.myshopify.com/orders/paid/1da83e8a-c086-4c42-a7eb-e6adac5e357b", "orders/paid", "orders", Some("example.myshopify.com"), Some(1_767_621_700_000), "order/450789469"),
    ("shopify-orders-updated.json", "example.myshopify.com/orders/updated/f41673e5-771c-41ae-b218-549262a3f5b7", "orders/updated", "orders", Some("example.myshopify.com"), Some(1_767_712_501_000), "order/450789469"),
    ("shopify-refunds-create.json", "example.myshopify.com/refunds/create/2e04e520-97d1-406c-a777-5907d20cf181", "refunds/create", "refunds", Some("example.myshopify.com"), Some(1_767_801_600_660), "order/450789469"),
    ("shopify-shop-redact.json", "example.myshopify.com/shop/redact/ad2dcaed-784f-444b-9981-9957ceda05b0", "shop/redact", "shop", Some("example.myshopify.com"), Some(1_772_805_600_870), "shop/548380009"),
    ("square-order-created.json", "ec7f5797-38d4-4c36-a184-10a07dfa91c6", "order.created", "order", Some("MLEXAMPLE0001"), Some(1_767_621_600_012), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
    ("square-order-fulfillment-updated.json", "0c709512-b8fc-417b-b206-d978cef3d9b9", "order.fulfillment.updated", "order.fulfillment", Some("MLEXAMPLE0001"), Some(1_767_712_500_077), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
    ("square-order-updated.json", "414e7e84-6660-4d3d-afa3-55f6bd66015b", "order.updated", "order", Some("MLEXAMPLE0001"), Some(1_767_621_700_421), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
    ("square-payment-updated.json", "bcdf920e-6898-4ef5-acca-f0e37b095a22", "payment.updated", "payment", Some("MLEXAMPLE0001"), Some(1_767_621_699_640), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
    ("square-refund-created.json", "5fe5c38b-6c57-48f3-ba51-31092ce20c56", "refund.created", "refund", Some("MLEXAMPLE0001"), Some(1_767_801_600_031), "order/eA3vssLHKJrv9H0IdJCM3gNqfdcZY"),
    ("standard-webhooks-order-shipped.json", "msg_2vExampleDev0Shipped000001", "order.shipped", "order", None, Some(1_767_712_470_250), "order/450789469"),
    ("standard-webhooks-parcel-delivered.json", "msg_2vExampleDev0Delivered0001", "parcel.delivered", "parcel", None, Some(1_767_880_800_500), "order/450789469"),
    ("stripe-charge-dispute-created.json", "evt_1SpC8yExampleDev0disputed", "charge.dispute.created", "charge.dispute", None, Some(1_768_399_200_000), "payment_intent/pi_3SmC8xExampleDev0aBcDeFg"),
    ("stripe-charge-refunded.json", "evt_3SmC8xExampleDev0refunded", "charge.refunded", "charge", None, Some(1_767_801_602_000), "order/450789469"),
    ("stripe-checkout-session-completed.json", "evt_1SmC8yExampleDev0completed", "checkout.session.completed", "checkout.session", None, Some(1_767_621_697_000), "order/450789469"),
    ("stripe-payment-intent-succeeded.json", "evt_3SmC8xExampleDev0succeeded", "payment_intent.succeeded", "payment_intent", None, Some(1_767_621_697_000), "order/450789469"),
    ("stripe-thin-meter-error.json", "evt_test_65ExampleDev0thin", "v1.billing.meter.error_report_triggered", "v1.billing.meter", None, Some(1_767_621_800_250), "billing.meter/mtr_test_61ExampleDev0meter"),
    ("woocommerce-order-created.json", "https://store.example.com/order.created/727/sha256:-QgBVYGMzYm29QKmMyLkToWKlc-FtjgRena2cbmfFs0", "order.created", "order", Some("https://store.example.com"), Some(1_767_621_600_000), "order/727"),
    ("woocommerce-order-deleted.json", "https://store.example.com/order.deleted/727/sha256:m3MwiPbeMCIYpP4q03-2iiMe1EfRKD0wGo5t9o0hmts", "order.deleted", "order", Some("https://store.example.com"), None, "order/727"),
    ("woocommerce-order-updated.json", "https://store.example.com/order.updated/727/sha256:KUWL4huWsqBr-E9nxAOQOR26vsEsaORNZJyJaTcW-QA", "order.updated", "order", Some("https://store.example.com"), Some(1_767_621_700_000), "order/727"),
];
