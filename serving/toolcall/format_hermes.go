package toolcall

// Hermes 2 Pro, Qwen2.5, Qwen3, SmolLM3 and Granite 4. SmolLM3's other kind of tools, Python code
// that is run, is no call. GLM writes <arg_key> between the same markers.
func init() {
	register(Format{
		Name: "hermes", Doc: `<tool_call>{"name": …, "arguments": {…}}</tool_call>, several`,
		detect:  has([]string{"<tool_call>", "</tool_call>", "arguments"}, "<function=", "<arg_key>", "<|tool_call|>"),
		openers: []string{"<tool_call>"}, closer: "</tool_call>",
		forced: layout{open: "<tool_call>\n", close: "\n</tool_call>", between: "\n", arguments: "arguments"},
	})
}
