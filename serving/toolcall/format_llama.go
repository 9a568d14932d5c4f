package toolcall

// Llama 3.1, 3.2 and 3.3. Their templates take one call a message. The calls of built-in
// tools, NAME.call(…) after <|python_tag|>, are content.
func init() {
	call := callInJSON{key: "parameters", known: true, next: ";"}
	register(Format{
		Name: "llama", Doc: `{"name": …, "parameters": {…}} as the whole answer or after <|python_tag|>, several with ; between`,
		detect:  has([]string{`{"name": `, `"parameters": `, "ipython"}),
		openers: []opener{{mark: "<|python_tag|>", call: call}, {mark: "{", call: call, within: true, at: answerStart}},
		forced:  layout{call: call, single: true},
	})
}
