//! Tokens of a cluster: they are valid at every node.

use super::{Fleet, FleetRequest, ok};
use crate::admin;
use crate::error::{ApiError, ApiResult};
use crate::fields::check_id;
use crate::query::Query;
use crate::route::{Action, RouteMatch, VALIDATE_ONLY};
use axum::response::Response;
use serde_json::{Value, json};
use weir_control::Status;

impl Fleet {
    /// Lists, creates or deletes tokens.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the field; NOT_FOUND; ALREADY_EXISTS; UNAVAILABLE: the cluster's
    /// tables cannot be reached.
    pub(super) async fn tokens(
        &self,
        asked: &FleetRequest<'_>,
        matched: &RouteMatch,
        query: &Query,
    ) -> ApiResult<Response> {
        query.only(matched.route.parameters())?;
        let only = query.flag(VALIDATE_ONLY)?;
        let id = matched.parts.first().map_or("", String::as_str);
        match matched.route.action {
            Action::CreateToken => self.create_token(asked, query, only).await,
            Action::DeleteToken => {
                let there = match only {
                    true => {
                        let all = self.members.tokens().await.map_err(out_of_reach)?;
                        all.iter().any(|token| token.name == id)
                    }
                    false => self.members.delete_token(id).await.map_err(out_of_reach)?,
                };
                match there {
                    true => Ok(ok(&json!({}))),
                    false => Err(ApiError::not_found(&format!("tokens/{id}"))),
                }
            }
            _ => {
                let all = self.members.tokens().await.map_err(out_of_reach)?;
                let all: Vec<Value> = all
                    .iter()
                    .map(|token| Value::Object(admin::token(token)))
                    .collect();
                Ok(ok(&json!({"tokens": all})))
            }
        }
    }

    async fn create_token(
        &self,
        asked: &FleetRequest<'_>,
        query: &Query,
        only: bool,
    ) -> ApiResult<Response> {
        let id = check_id("tokenId", query.get("tokenId"))?;
        let new = admin::new_token(&asked.body)?;
        if new.key.is_some() {
            return Err(ApiError::unimplemented(
                "A service account of a whole cluster",
                "Create a token without a key, or the account at each aggregate (/aggregates/NAME/v1/tokens)",
            ));
        }
        if only {
            return Ok(ok(
                &json!({"done": true, "response": {"name": format!("tokens/{id}")}}),
            ));
        }
        let by = &asked.actor.name;
        let made = self.members.create_token(&id, new.role, new.lifetime, by);
        let made = made.await.map_err(out_of_reach)?;
        let Some((record, secret)) = made else {
            return Err(ApiError::new(
                Status::AlreadyExists,
                "NAME_TAKEN",
                format!("token {id} already exists"),
            ));
        };
        let mut out = admin::token(&record);
        out.insert("token".to_owned(), Value::String(secret));
        Ok(ok(&Value::Object(out)))
    }
}

fn out_of_reach(why: String) -> Box<ApiError> {
    ApiError::new(
        Status::Unavailable,
        "TABLES_OUT_OF_REACH",
        format!("The cluster's tables cannot be reached: {why}; tokens that there are stay valid"),
    )
}
