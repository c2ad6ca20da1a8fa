//! The hub: handlers as functions of (request, index, objects), and the publisher.
