# The demo: rules that the top Makefile includes. Its parts lie in a room of their own, because every
# .c file beside demo.c is a program.

DEMO := $(B)/examples/demo/demo
FLAGS_examples/demo += -Ischeduler/ctl -Iexamples/demo/parts

$(B)/examples/demo/demo: $(patsubst %.c,$(B)/obj/%.o,$(wildcard examples/demo/parts/*.c)) \
	$(B)/obj/scheduler/ctl/text.o
