package toolcall

// Mistral and Ministral. Both forms are read of all; templates differ in what they teach.
func init() {
	call := callByName{callInJSON{key: "arguments"}}
	f := Format{
		Name: "mistral", Doc: `[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`,
		detect:  has([]string{"[TOOL_CALLS]"}, "[ARGS]"),
		openers: []opener{{mark: "[TOOL_CALLS]", call: call}}, inner: []string{callID, argsMark},
		forced: layout{prefix: "[TOOL_CALLS] [", between: ", ", suffix: "]", call: call.callInJSON},
	}
	register(f)
	f.Name, f.Doc = "mistral-args", `[TOOL_CALLS]NAME[ARGS]{…}, several`
	f.detect = has([]string{"[TOOL_CALLS]", "[ARGS]"})
	f.forced = layout{open: "[TOOL_CALLS]", call: call}
	register(f)
}
