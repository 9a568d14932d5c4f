package chat

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"glimpse/internal/modelfile"
	"glimpse/internal/registry"
	"glimpse/internal/regularfile"
	"glimpse/internal/suggest"
)

// Source is a chat template that is given in the place of a model's own.
type Source struct {
	Text string // in Jinja; "" is the model's own
	From string // where it is from, for messages
	// Named tells that it is one of Templates, which begin texts as the model's tokenizer does: with its first token, or without.
	Named bool
}

// maxTemplate bounds a template's file. The largest of a model has 20 KB.
const maxTemplate = 1 << 20

// ReadSource finds the template that is meant: the name of one of Templates, a file, or the template itself, which has {{ or
// {% in it. "" is the model's own. What is no template is an error.
func ReadSource(spec string) (s Source, err error) {
	named, unknown := Templates.Lookup(spec)
	switch {
	case spec == "":
		return Source{}, nil
	case unknown == nil:
		s = Source{Text: named, From: spec, Named: true}
	case strings.Contains(spec, "{{") || strings.Contains(spec, "{%"):
		s = Source{Text: spec, From: "the command line"}
	default:
		raw, err := regularfile.Read(spec, maxTemplate)
		if errors.Is(err, fs.ErrNotExist) {
			return Source{}, fmt.Errorf("chat template: no file, and %w", suggest.Unknown(Templates.Noun, spec, Templates.Names()))
		}
		if err == nil {
			err = modelfile.Foreign(raw)
		}
		if err != nil {
			return Source{}, fmt.Errorf("chat template %s: %w", spec, err)
		}
		s = Source{Text: string(raw), From: spec}
	}
	if _, err := Parse(s.Text); err != nil {
		return Source{}, fmt.Errorf("%s: %w", s.From, err)
	}
	return s, nil
}

// Templates are those for models whose files have none, by the names of llama.cpp's --chat-template, and write what it writes
// (llama-chat.cpp, llm_chat_apply_template). They know no tools.
var Templates = registry.Registry[string]{Noun: "template"}

func init() {
	// turns is a template that writes every message in the same way, and what begins an answer. In both, role and content are
	// the message's.
	turns := func(message, answer string) string {
		return "{{ bos_token }}{% for m in messages %}{% set role = m.role %}{% set content = m.content or '' %}" + message +
			"{% endfor %}{% if add_generation_prompt %}" + answer + "{% endif %}"
	}
	// of writes a system prompt, what a user says, and an answer.
	of := func(system, user, assistant string) string {
		return "{% if role == 'system' %}" + system + "{% elif role == 'user' %}" + user + "{% else %}" + assistant + "{% endif %}"
	}
	Templates.Add("chatml", turns("<|im_start|>{{ role }}\n{{ content }}<|im_end|>{{ '\n' }}", "<|im_start|>assistant{{ '\n' }}"))
	Templates.Add("chatglm4", "[gMASK]<sop>"+turns("<|{{ role }}|>\n{{ content }}", "<|assistant|>{{ '\n' }}"))
	Templates.Add("command-r", turns(of("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")+
		"{{ content | trim }}<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"))
	Templates.Add("deepseek", turns(of("{{ content }}", "### Instruction:\n{{ content }}{{ '\n' }}", "### Response:\n{{ content }}\n<|EOT|>{{ '\n' }}"), "### Response:{{ '\n' }}"))
	Templates.Add("deepseek2", turns(of("{{ content }}\n{{ '\n' }}", "User: {{ content }}\n{{ '\n' }}", "Assistant: {{ content }}<｜end▁of▁sentence｜>"), "Assistant:"))
	Templates.Add("deepseek3", turns(of("{{ content }}\n{{ '\n' }}", "<｜User｜>{{ content }}", "<｜Assistant｜>{{ content }}<｜end▁of▁sentence｜>"), "<｜Assistant｜>"))
	Templates.Add("falcon3", turns("<|{{ role }}|>\n{{ content }}{{ '\n' }}", "<|assistant|>{{ '\n' }}"))
	Templates.Add("granite", turns("<|start_of_role|>{{ role }}<|end_of_role|>{{ content }}<|end_of_text|>{{ '\n' }}", "<|start_of_role|>assistant<|end_of_role|>"))
	Templates.Add("llama3", turns("<|start_header_id|>{{ role }}<|end_header_id|>\n\n{{ content | trim }}<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n{{ '\n' }}"))
	Templates.Add("openchat", turns(of("{{ content }}", "GPT4 Correct User: {{ content }}", "GPT4 Correct Assistant: {{ content }}")+"<|end_of_turn|>", "GPT4 Correct Assistant:"))
	Templates.Add("phi3", turns("<|{{ role }}|>\n{{ content }}<|end|>{{ '\n' }}", "<|assistant|>{{ '\n' }}"))
	Templates.Add("phi4", turns("<|im_start|>{{ role }}<|im_sep|>{{ content }}<|im_end|>", "<|im_start|>assistant<|im_sep|>"))
	Templates.Add("vicuna", turns(of("{{ content }}\n{{ '\n' }}", "USER: {{ content }}{{ '\n' }}", "ASSISTANT: {{ content }}</s>{{ '\n' }}"), "ASSISTANT:"))
	Templates.Add("vicuna-orca", turns(of("SYSTEM: {{ content }}{{ '\n' }}", "USER: {{ content }}{{ '\n' }}", "ASSISTANT: {{ content }}</s>{{ '\n' }}"), "ASSISTANT:"))
	Templates.Add("zephyr", turns("<|{{ role }}|>\n{{ content }}<|endoftext|>{{ '\n' }}", "<|assistant|>{{ '\n' }}"))
	// Gemma has no system prompt: it goes before what the user says first.
	Templates.Add("gemma", "{% set ns = namespace(system='') %}"+turns("{% if role == 'system' %}{% set ns.system = ns.system ~ content | trim %}{% else %}"+
		"<start_of_turn>{{ 'model' if role == 'assistant' else role }}\n{% if role != 'assistant' and ns.system %}{{ ns.system }}\n\n{% set ns.system = '' %}{% endif %}"+
		"{{ content | trim }}<end_of_turn>{{ '\n' }}{% endif %}", "<start_of_turn>model{{ '\n' }}"))
	// Of Llama 2 and Mistral, [INST] begins what comes before an answer.
	inst := func(first, begin, message string) string {
		return "{% set ns = namespace(begun=" + first + ") %}" + turns("{% if not ns.begun %}"+begin+"{% set ns.begun = true %}{% endif %}"+message+
			"{% if role != 'system' and role != 'user' %}{% set ns.begun = false %}{% endif %}", "")
	}
	llama2 := func(begin, system string, strip bool) string {
		message := of(system, "{{ content }} [/INST]", "{{ content }}</s>")
		if strip {
			message = "{% set content = content | trim %}" + message
		}
		return strings.Replace(inst("true", begin, message), "{{ bos_token }}", "{{ bos_token }}[INST] ", 1)
	}
	const sys = "<<SYS>>\n{{ content }}\n<</SYS>>\n{{ '\n' }}"
	Templates.Add("llama2", llama2("[INST] ", "{{ content }}{{ '\n' }}", false))
	Templates.Add("llama2-sys", llama2("[INST] ", sys, false))
	Templates.Add("llama2-sys-bos", llama2("<s>[INST] ", sys, false))
	Templates.Add("llama2-sys-strip", llama2("[INST] ", sys, true))
	const before = "{{ content }}\n{{ '\n' }}"
	Templates.Add("mistral-v1", inst("false", " [INST] ", of(before, "{{ content }} [/INST]", " {{ content }}</s>")))
	Templates.Add("mistral-v3", inst("false", "[INST] ", of(before, "{{ content }}[/INST]", " {{ content | trim }}</s>")))
	Templates.Add("mistral-v3-tekken", inst("false", "[INST]", of(before, "{{ content }}[/INST]", "{{ content }}</s>")))
	Templates.Add("mistral-v7", turns(of("[SYSTEM_PROMPT] {{ content }}[/SYSTEM_PROMPT]", "[INST] {{ content }}[/INST]", " {{ content }}</s>"), ""))
	Templates.Add("mistral-v7-tekken", turns(of("[SYSTEM_PROMPT]{{ content }}[/SYSTEM_PROMPT]", "[INST]{{ content }}[/INST]", "{{ content }}</s>"), ""))
}
