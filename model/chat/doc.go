// Package chat turns a conversation into the text that a model was trained on,
// by the Jinja template that comes with the model.
//
// The text holds the special tokens, so that it is encoded without adding them
// again. What a template sees is what transformers' apply_chat_template shows it:
// the messages, the tools and documents (none if there are none), the tokens, and
// further variables such as enable_thinking. The language itself is in package
// [glimpse/model/chat/jinja].
package chat
