//! Bodies of ron-kms requests: any bytes are one, or are refused in one line as the client's mistake.

use ron_core::{api::parse, problem::Problem};
use ron_kms::{api::requests, ask::Caller};

// proves: KMS-10.8
pub fn run(body: &[u8]) {
    let caller = Caller {
        actor: String::new(),
        tenant: Some("t".to_owned()),
    };
    check(parse::<requests::Create>(body).and_then(|r| r.into_ask(&caller)));
    check(parse::<requests::Rotate>(body));
    check(parse::<requests::Destroy>(body));
    check(parse::<requests::CancelDestroy>(body));
    check(parse::<requests::SetPolicy>(body));
    check(parse::<requests::Import>(body));
    check(parse::<requests::Nothing>(body));
    check(parse::<requests::Sign>(body).and_then(|r| r.into_ask(body)));
    check(parse::<requests::Verify>(body).and_then(requests::Verify::into_ask));
    check(parse::<requests::Wrap>(body).map(|r| r.into_ask(body)));
    check(parse::<requests::Unwrap>(body).map(requests::Unwrap::into_ask));
    check(parse::<requests::DataKey>(body).map(|r| r.into_ask(body)));
    check(parse::<requests::Attest>(body));
}

fn check<T>(parsed: Result<T, Problem>) {
    if let Err(problem) = parsed {
        assert!(problem.status().is_client_error(), "{problem}");
        assert_eq!(problem.to_string().lines().count(), 1, "{problem}");
    }
}
