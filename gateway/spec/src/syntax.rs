//! Names and amounts that Kubernetes accepts, checked before Kubernetes has to.

mod address;
mod name;
mod quantity;

pub use address::{is_web_url, url_template};
pub use name::{
    LABEL_NAME_MAX, is_annotation_key, is_dns_label, is_dns_subdomain, is_image, is_label_value, is_variable,
};
pub use quantity::{BadQuantity, Quantity};
