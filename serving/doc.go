// Package serving is the server of "evict serve": OpenAI's HTTP API, and Anthropic's, over the engine.
//
// A handler reads a request into a [exchange], which is tokens, settings and a policy with its budget; the one
// goroutine that owns the engine (worker) runs it beside all others and hands what is said back; the handler writes it
// as JSON or as a stream of server-sent events. Nothing here decodes.
package serving
