package toolcall

// Hermes 2 Pro, Qwen2.5, Qwen3, SmolLM3 and Granite 4. SmolLM3's other kind of tools, Python code
// that is run, is no call. GLM writes <arg_key> between the same markers. Small models, Qwen2.5-Coder's among them, leave the
// tags out, or write a fence or the tags of the list of tools in their place; llama.cpp reads these, too.
func init() {
	call := callInJSON{key: "arguments", stop: "</tool_call>"}
	loose := func(stop string) callInJSON { return callInJSON{known: true, whole: true, stop: stop} }
	register(Format{
		Name: "hermes", Doc: `<tool_call>{"name": …, "arguments": {…}}</tool_call>, several`,
		detect: has([]string{"<tool_call>", "</tool_call>", "arguments"}, "<function=", "<arg_key>", "<|tool_call|>"),
		openers: []opener{
			{mark: "<tool_call>", call: call},
			{mark: "```json", call: loose("```"), at: lineStart}, {mark: "```", call: loose("```"), at: lineStart}, {mark: "<tools>", call: loose("</tools>"), at: lineStart},
			{mark: "{", call: loose(""), within: true, at: lineStart}, {mark: "[", call: loose(""), within: true, at: lineStart},
		},
		closer: call.stop,
		forced: layout{open: "<tool_call>\n", close: "\n</tool_call>", between: "\n", call: call},
	})
}
