// Package judging asks a language model to rate answers.
//
// A [Judge] is any server that speaks OpenAI's chat completions. It is asked greedily, with
// a bounded time for each attempt and a bounded number of them, and tells errors that another
// attempt would get, too, from those that it would not:
//
//	judge := &judging.Judge{URL: "http://localhost:8000/v1", Model: "qwen3-235b"}
//	text, err := judge.Ask(ctx, "You are a helpful assistant.", prompt)
//	rating, ok := judging.Rating(text)
package judging
