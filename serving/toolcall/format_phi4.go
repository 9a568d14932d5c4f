package toolcall

// Phi-4-mini.
func init() {
	call := callInJSON{key: "arguments", stop: "<|/tool_call|>"}
	register(Format{
		Name: "phi4", Doc: `<|tool_call|>[{"name": …, "arguments": {…}}, …]<|/tool_call|>`,
		detect:  has([]string{"<|/tool|>"}),
		openers: []opener{{mark: "<|tool_call|>", call: call}}, closer: call.stop,
		forced: layout{prefix: "<|tool_call|>[", between: ", ", suffix: "]<|/tool_call|>", call: call},
	})
}
