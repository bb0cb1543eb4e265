//! What becomes of a request that one of a site's endpoints was asked. Pure; no threads.
//!
//! Invariant: a request that an endpoint may have got is sent to another one once at most, and only
//! if that harms nothing (`may_resend`) and the other is healthy.

use http::{Response, StatusCode};

use crate::error::FetchError;

/// What comes next.
#[derive(Debug)]
pub(super) enum After<B, U> {
    /// This is the answer.
    Done(Response<B>),
    /// Another endpoint is asked, if there is one: this one had nothing of the request.
    Next { unsent: U, error: FetchError },
    /// The same is asked of another endpoint. It broke off by this error; `None`: it answered by a
    /// status to be retried.
    Resend(Option<FetchError>),
    /// This is why there is no answer.
    Failed(FetchError),
}

/// Endpoints that a request may be sent to once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Those like the one that was asked: one that was reached does not make backups of use.
    Alike,
    /// Also backups: an answer that is none may be the same from all that share a cause.
    Any,
}

/// What holds for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    /// Statuses by which one of several endpoints has failed.
    pub(super) retry_statuses: &'a [StatusCode],
    /// It can be sent twice, and was not.
    pub(super) may_resend: bool,
    /// No time is left.
    pub(super) is_over: bool,
}

/// Decides by what came of asking one endpoint, an answer or an error with what was not sent, and
/// by whether one of the others is healthy, which is asked only if it matters.
pub(super) fn after<B, U>(
    sent: Result<Response<B>, (FetchError, Option<U>)>,
    terms: Terms<'_>,
    is_one_healthy: impl Fn(Others) -> bool,
) -> After<B, U> {
    let may_resend = terms.may_resend && !terms.is_over;
    match sent {
        Ok(response)
            if may_resend
                && terms.retry_statuses.contains(&response.status())
                && is_one_healthy(Others::Any) =>
        {
            After::Resend(None)
        }
        Ok(response) => After::Done(response),
        Err((error, Some(unsent))) if error.is_unreachable() && !terms.is_over => {
            After::Next { unsent, error }
        }
        Err((error, _)) if may_resend && error.is_broken_off() && is_one_healthy(Others::Alike) => {
            After::Resend(Some(error))
        }
        Err((error, _)) => After::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms<'_> = Terms {
        retry_statuses: &[StatusCode::SERVICE_UNAVAILABLE],
        may_resend: true,
        is_over: false,
    };

    type Sent = Result<Response<()>, (FetchError, Option<u8>)>;

    fn answered(status: u16) -> Sent {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok(response)
    }

    /// Where there is a healthy one among these others.
    fn among(healthy: Option<Others>) -> impl Fn(Others) -> bool {
        move |others| healthy == Some(Others::Alike) || healthy == Some(others)
    }

    fn name(after: &After<(), u8>) -> &'static str {
        match after {
            After::Done(_) => "done",
            After::Next { .. } => "next",
            After::Resend(_) => "resend",
            After::Failed(_) => "failed",
        }
    }

    #[test]
    fn an_answer_is_the_answer_unless_its_status_is_to_be_retried() {
        let not_twice = Terms { may_resend: false, ..TERMS };
        let over = Terms { is_over: true, ..TERMS };
        for (status, terms, healthy, expected) in [
            (200, TERMS, Some(Others::Alike), "done"),
            (502, TERMS, Some(Others::Alike), "done"),
            (503, TERMS, Some(Others::Alike), "resend"),
            (503, TERMS, Some(Others::Any), "resend"),
            (503, TERMS, None, "done"),
            (503, not_twice, Some(Others::Alike), "done"),
            (503, over, Some(Others::Alike), "done"),
        ] {
            let after = after(answered(status), terms, among(healthy));
            assert_eq!(name(&after), expected, "{status} {terms:?} {healthy:?}");
        }
    }

    #[test]
    fn an_error_is_the_end_unless_another_may_be_asked() {
        let not_twice = Terms { may_resend: false, ..TERMS };
        let over = Terms { is_over: true, ..TERMS };
        let (gone, broken) = (FetchError::Connect(None), FetchError::Broken);
        for (error, unsent, terms, healthy, expected) in [
            (&gone, Some(7), TERMS, None, "next"),
            (&gone, Some(7), not_twice, None, "next"),
            (&gone, Some(7), over, Some(Others::Alike), "failed"),
            (&gone, None, TERMS, None, "failed"),
            (&broken, None, TERMS, Some(Others::Alike), "resend"),
            (&broken, None, TERMS, Some(Others::Any), "failed"),
            (&broken, None, not_twice, Some(Others::Alike), "failed"),
            (&broken, None, over, Some(Others::Alike), "failed"),
            (&FetchError::HeaderTimeout, None, TERMS, Some(Others::Alike), "failed"),
        ] {
            let sent: Sent = Err((error.clone(), unsent));
            let after = after(sent, terms, among(healthy));
            assert_eq!(name(&after), expected, "{error:?} {terms:?} {healthy:?}");
            if let After::Next { unsent, .. } = after {
                assert_eq!(unsent, 7);
            }
        }
    }
}
