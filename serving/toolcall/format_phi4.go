package toolcall

// Phi-4-mini.
func init() {
	register(Format{
		Name: "phi4", Doc: `<|tool_call|>[{"name": …, "arguments": {…}}, …]<|/tool_call|>`,
		detect:  has([]string{"<|/tool|>"}),
		openers: []string{"<|tool_call|>"}, closer: "<|/tool_call|>",
		forced: layout{prefix: "<|tool_call|>[", between: ", ", suffix: "]<|/tool_call|>", arguments: "arguments"},
	})
}
