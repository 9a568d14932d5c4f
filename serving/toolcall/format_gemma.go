package toolcall

// FunctionGemma and Gemma 4, as Google's documentation has them. Gemma 3 has no format of its own.
func init() {
	gemma4 := callInBraces{quote: `<|"|>`, stop: "<tool_call|>"}
	register(Format{
		Name: "gemma4", Doc: `<|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:NUMBER}<tool_call|>, several`,
		detect:  has([]string{"<|tool_call>", "<tool_call|>"}),
		openers: []opener{{mark: "<|tool_call>", call: gemma4}}, closer: gemma4.stop, inner: []string{gemma4.quote},
		forced: layout{open: "<|tool_call>", close: gemma4.stop, call: gemma4},
	})
	function := callInBraces{quote: "<escape>", stop: "<end_function_call>"}
	register(Format{
		Name: "functiongemma", Doc: `<start_function_call>call:NAME{KEY:<escape>TEXT<escape>,KEY:NUMBER}<end_function_call>, several`,
		detect:  has([]string{"<start_function_call>", "<end_function_call>"}),
		openers: []opener{{mark: "<start_function_call>", call: function}}, closer: function.stop, inner: []string{function.quote},
		forced: layout{open: "<start_function_call>", close: function.stop, call: function},
	})
}
