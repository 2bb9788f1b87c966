// The flash, whose content is a file of the run's folder (board.h).
void flash_init(void);
void flash_close(void);
