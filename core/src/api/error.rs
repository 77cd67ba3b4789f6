//! A service's own errors as callers see them: one trait, and one rule for trying again.
//!
//! Always: a problem is retryable exactly if it says when to come back.

use std::{fmt::Display, time::Duration};

use http::StatusCode;

use crate::problem::Problem;

/// How long a caller is asked to stay away when only time will tell.
pub const COME_BACK_AFTER: Duration = Duration::from_secs(1);

/// An error that a caller is told.
pub trait ApiError: Display {
    fn status(&self) -> StatusCode;

    /// Stable: callers branch on it.
    fn code(&self) -> &'static str;

    /// When it makes sense to try again, if it does.
    fn retry_after(&self) -> Option<Duration> {
        comes_back(self.status())
    }

    /// Adds what else the caller can use.
    fn tell(&self, problem: Problem) -> Problem {
        problem
    }
}

/// The rule: what is refused for lack of time or room is worth another try, anything else is not.
pub fn comes_back(status: StatusCode) -> Option<Duration> {
    let passes = matches!(status.as_u16(), 408 | 425 | 429 | 502 | 503 | 504);
    passes.then_some(COME_BACK_AFTER)
}

impl<E: ApiError> From<E> for Problem {
    #[cold]
    fn from(error: E) -> Problem {
        let problem = Problem::new(error.status(), error.code()).detail(&error);
        error.tell(problem.retrying(error.retry_after()))
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http::header;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no")]
    struct Told(StatusCode, Option<Option<Duration>>);

    impl ApiError for Told {
        fn status(&self) -> StatusCode {
            self.0
        }
        fn code(&self) -> &'static str {
            "told"
        }
        fn retry_after(&self) -> Option<Duration> {
            self.1.unwrap_or_else(|| comes_back(self.0))
        }
        fn tell(&self, problem: Problem) -> Problem {
            problem.with("more", 1)
        }
    }

    #[test]
    fn a_problem_is_retryable_exactly_if_it_says_when_to_come_back() {
        let ms = |ms| Some(Some(Duration::from_millis(ms)));
        for (status, own, after) in [
            (400, None, None),
            (403, None, None),
            (404, None, None),
            (408, None, Some("1")),
            (409, None, None),
            (409, ms(1), Some("1")),
            (413, None, None),
            (422, None, None),
            (429, None, Some("1")),
            (429, ms(2_500), Some("3")),
            (500, None, None),
            (502, None, Some("1")),
            (503, None, Some("1")),
            (503, Some(None), None),
            (504, None, Some("1")),
            (507, None, None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let problem = Problem::from(Told(status, own));
            assert_eq!(problem.is_retryable(), after.is_some(), "{status}");
            let answer = problem.into_response();
            let said = answer.headers().get(header::RETRY_AFTER);
            assert_eq!(said.map(|v| v.to_str().unwrap()), after, "{status}");
        }
    }
}
